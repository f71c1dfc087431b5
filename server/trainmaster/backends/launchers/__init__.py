"""What holds a run's supervisor on a host."""

from trainmaster.backends.launchers.launcher import Launcher
from trainmaster.backends.launchers.process import ProcessLauncher

__all__ = ["Launcher", "ProcessLauncher"]
