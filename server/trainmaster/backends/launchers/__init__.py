"""Launchers: they keep a run's supervisor alive on a host."""

from trainmaster.backends.launchers.launcher import Abilities, Job, JobState, Launcher
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.backends.launchers.slurm import SlurmLauncher

__all__ = ["Abilities", "Job", "JobState", "Launcher", "ProcessLauncher", "SlurmLauncher"]
