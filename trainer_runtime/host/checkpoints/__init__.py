"""Checkpoints beside the training: pinned, copied, mirrored."""
