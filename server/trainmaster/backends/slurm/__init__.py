"""Slurm as a place where a run stays: job after job, submitted on a login node."""
