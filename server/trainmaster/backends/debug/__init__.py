"""A host inside this process: the real supervisor over simulated trainers, with planted faults.

For rehearsing: agents and operators try a whole run, and what they do when it breaks, without a
GPU, PyTorch or waiting; the tests of everything above it run on it too. A run lives as long as the
process that reads it; the next process that reads it finds the trainer dead and recovers it, as
after a crash.

Two of the spec's plain variables (`env`) steer it: `TRAINMASTER_STEP_S`, the seconds a step takes
(0.01), and `TRAINMASTER_FAULTS`, a list such as `kill@30 nan@50`; see `faults.py`.
"""

from trainmaster.backends.debug.backend import DebugBackend
from trainmaster.backends.debug.launcher import InProcessLauncher

__all__ = ["DebugBackend", "InProcessLauncher"]
