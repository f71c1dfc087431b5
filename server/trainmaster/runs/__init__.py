"""What is done with a run: plan, launch, attach, wait, stop, resume, fetch, clean."""
