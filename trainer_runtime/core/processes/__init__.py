"""Ends of processes: parents, ranks."""
