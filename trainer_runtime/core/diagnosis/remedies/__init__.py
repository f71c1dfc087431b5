"""What can be done about a finding: one closed catalogue for logs and series, all of it data.

`rung.py` is the shape of a rung, `rules.py` what each changes in a configuration, `ladder.py` the
one table of them, gentlest first for each code, `rewinds.py` the rungs with a way back that
findings of series propose, and `advice.py` what a person can do where no patch can.
"""

from trainer_runtime.core.diagnosis.remedies.advice import ADVICE, advice
from trainer_runtime.core.diagnosis.remedies.ladder import FRAMEWORKS, LADDER, RUNGS, patches
from trainer_runtime.core.diagnosis.remedies.rewinds import (
    ANNOUNCE_A_REWIND,
    OF_SERIES,
    REMEDIES,
    Remedy,
)
from trainer_runtime.core.diagnosis.remedies.rung import Changes, Config, Rung, value_at

__all__ = [
    "ADVICE",
    "ANNOUNCE_A_REWIND",
    "FRAMEWORKS",
    "LADDER",
    "OF_SERIES",
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
