"""The index of checkpoints, and which ones are pinned."""
