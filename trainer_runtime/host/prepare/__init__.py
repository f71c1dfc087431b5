"""Preparation before the trainer: environment, model, data."""
