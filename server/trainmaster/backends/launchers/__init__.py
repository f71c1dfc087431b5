"""Launchers: they keep a run's supervisor alive on a host. `process` and `slurm` have one each."""

from trainmaster.backends.launchers.launcher import Abilities, Job, JobState, Launcher

__all__ = ["Abilities", "Job", "JobState", "Launcher"]
