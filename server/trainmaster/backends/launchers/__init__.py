"""Launchers: they keep a run's supervisor alive on a host."""

from trainmaster.backends.launchers.launcher import Launcher
from trainmaster.backends.launchers.process import ProcessLauncher

__all__ = ["Launcher", "ProcessLauncher"]
