"""Alerts that the host sends by itself."""
