"""Processes of an attempt: hold, identity, ranks."""
