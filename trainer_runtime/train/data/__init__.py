"""Batches, rows and shards, in an exact order."""
