"""Trainings that others started: their logs, panes and processes."""
