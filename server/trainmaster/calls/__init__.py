"""Bounds of a call: bytes, time, shares of callers, progress, its end."""
