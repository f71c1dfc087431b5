"""Diagnoses a stall from stack dumps of the run's processes."""
