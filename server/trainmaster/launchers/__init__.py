"""What holds a run's supervisor on a host."""

from trainmaster.launchers.launcher import Launcher
from trainmaster.launchers.process import ProcessLauncher

__all__ = ["Launcher", "ProcessLauncher"]
