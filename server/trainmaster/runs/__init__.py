"""What one does with a run."""
