"""The commands on runs: plan, launch, watch, diagnose, resume, clean."""
