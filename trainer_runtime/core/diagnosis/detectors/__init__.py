"""Detects problems in growing series of metrics and telemetry, identically on host and client.

`Detectors` is the entry point. Each detector is a small dataclass in its own module (`spike.py`,
`stall.py`, …) whose docstring cites the measurement or publication behind its thresholds, and which
declares its findings with their text (`detector.py`). `detector_set.py` lists them,
`detector_context.py` is the state they share, `ledger.py` records what they find, `patches.py` and
`messages.py` turn that into patches and text.
"""

from trainer_runtime.core.diagnosis.detectors.detectors import Detectors
from trainer_runtime.core.diagnosis.detectors.ledger import LedgerEntry
from trainer_runtime.core.diagnosis.detectors.settings import Settings

__all__ = ["Detectors", "LedgerEntry", "Settings"]
