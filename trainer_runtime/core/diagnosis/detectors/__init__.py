"""Watches series as they grow and says what is wrong: once, for the box and the operator's side.

`Detectors` is the whole of it. Each detector is a small dataclass of its own (`spike.py`,
`stall.py`, …) whose docstring gives the measurement or the publication that it rests on; `watch.py`
holds them together, `board.py` is what they share, `sightings.py` the life of what they find,
`patches.py` and `wording.py` what can be done and how it is told.
"""

from trainer_runtime.core.diagnosis.detectors.detectors import Detectors
from trainer_runtime.core.diagnosis.detectors.ledger import Sighting
from trainer_runtime.core.diagnosis.detectors.settings import Settings

__all__ = ["Detectors", "Settings", "Sighting"]
