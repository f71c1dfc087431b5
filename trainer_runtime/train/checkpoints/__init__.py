"""Checkpoints: saved, verified, pruned, restored."""
