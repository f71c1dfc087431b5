"""Recognises a loss that is a policy's objective where no reward is read and no method is known.

The loss of an actor starts at 0 and changes its sign, so that a multiple of its level means nothing
(see `detectors.py`); so does a log-likelihood of densities, which falls through 0. A cross-entropy
does neither: its zeros come later (a memorised set, fp16), or alone (all labels masked), or before
values of nats (single masked batches).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector import Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext

_NEGATIVE = 2  # one may be a placeholder
_ZEROS = 2
_FIRST = 16
_SMALL = 0.5
_OF_A_LEVEL = ("loss_spike", "loss_outliers", "divergence")


@dataclass(slots=True)
class ActorLoss(Detector):
    """`zeros` counts those of the first points, as long as the first was one and none is large."""

    reads_raw = ("loss",)

    points: int = 0
    zeros: int = 0
    negative: int = 0

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        self.points += 1
        if value < 0:
            self.negative += 1
        elif self.points <= _FIRST and value < _SMALL:
            self.zeros += value == 0 and (self.points == 1 or self.zeros > 0)
        elif self.points <= _FIRST:
            self.zeros = -_FIRST
        is_small = self.zeros >= _ZEROS and 0 < value < _SMALL
        if not context.is_reinforced and (is_small or self.negative >= _NEGATIVE):
            context.is_reinforced = True
            for code in _OF_A_LEVEL:
                context.ledger.withdraw(code)
