"""Plots of runs: PNG files, and characters for terminals."""
