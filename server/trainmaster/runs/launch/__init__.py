"""Launches runs, alone and as arrays."""
