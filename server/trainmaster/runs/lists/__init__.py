"""Lists of runs, checkpoints and alerts."""
