"""Machines: hosts on record, instances for rent."""
