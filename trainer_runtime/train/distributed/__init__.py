"""Ranks of one attempt."""
