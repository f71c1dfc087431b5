"""Slurm: what the login node is asked for, and what a job runs on its node."""
