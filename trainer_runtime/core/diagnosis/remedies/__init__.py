"""Remedies for findings: one closed catalogue for logs and series.

`rung.py` defines a change of the configuration, `rules.py` what each one changes, `ladder.py` lists
them, the mildest first for each code. `rewinds.py` combines them with a rewind for findings of
series. `advice.py` is for people, where no patch helps.
"""

from trainer_runtime.core.diagnosis.remedies.advice import ADVICE, advice
from trainer_runtime.core.diagnosis.remedies.ladder import LADDER, RUNGS, patches
from trainer_runtime.core.diagnosis.remedies.rewinds import REMEDIES, Remedy
from trainer_runtime.core.diagnosis.remedies.rung import Changes, Config, Rung, value_at

__all__ = [
    "ADVICE",
    "LADDER",
    "REMEDIES",
    "RUNGS",
    "Changes",
    "Config",
    "Remedy",
    "Rung",
    "advice",
    "patches",
    "value_at",
]
