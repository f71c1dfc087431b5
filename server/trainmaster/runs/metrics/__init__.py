"""Metrics, plots and settings of runs, compared."""
