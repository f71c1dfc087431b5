"""Inspects a run that seems to hang: stacks, processes, GPUs, and a verdict."""
