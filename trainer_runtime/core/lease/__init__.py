"""Leases and sessions: how long a machine may be used."""
