"""Generates text with a run's model, outside its training."""
