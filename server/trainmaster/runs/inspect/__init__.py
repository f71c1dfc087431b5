"""Looking at a run that seems to hang: stacks, processes, GPUs, and what they add up to."""
