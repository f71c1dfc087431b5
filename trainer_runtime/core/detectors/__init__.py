"""Watches series as they grow and says what is wrong: once, for the box and the operator's side.

`Detectors` is the whole of it. Each detector is a small dataclass of its own (`spike.py`,
`stall.py`, …) whose docstring gives the measurement or the publication that it rests on; `watch.py`
holds them together, `board.py` is what they share, `sightings.py` the life of what they find,
`patches.py` and `wording.py` what can be done and how it is told.
"""

from trainer_runtime.core.detectors.facade import Detectors
from trainer_runtime.core.detectors.settings import Settings
from trainer_runtime.core.detectors.sightings import Sighting

__all__ = ["Detectors", "Settings", "Sighting"]
