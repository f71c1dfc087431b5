"""Steps continue, but their losses are no longer logged: `loss_missing`.

Megatron leaves `lm loss` out of the lines of steps where it is NaN. A loss that came every few
steps and then not for 32, nor for four times its longest gap, is worth a warning.
"""

from __future__ import annotations

from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.records import dataclass

CODE = "loss_missing"
_FEWEST_LOSSES = 8
_FEWEST_STEPS = 32
_TIMES_LONGEST = 4


@dataclass(slots=True)
class MissingLoss:
    """`without` counts the steps since the newest loss, which was at `last_step`; `longest` is the
    largest such number so far."""

    losses: int = 0
    last_step: int = 0
    without: int = 0
    longest: int = 0

    def step(self, context: DetectorContext, step: int) -> None:
        """Take in a step, whatever is logged of it."""
        self.without += 1
        if context.is_reinforced:
            return  # its loss means little, and many log none
        if self.losses < _FEWEST_LOSSES or self.without <= _FEWEST_STEPS:
            return
        if self.without <= _TIMES_LONGEST * self.longest or context.ledger.get("nan_grad"):
            return
        entry = context.ledger.open(
            CODE,
            self.last_step,
            "warning",
            step=self.last_step,
            confidence=0.7,
            values={"last_loss_step": self.last_step},
        )
        entry.values["steps_without"] = self.without

    def loss(self, context: DetectorContext, step: int) -> None:
        """Take in a loss, finite or not."""
        self.losses += 1
        self.longest = max(self.longest, self.without)
        if self.without > _FEWEST_STEPS:
            context.ledger.close(CODE, step)
        self.without, self.last_step = 0, step

    def restart(self) -> None:
        self.losses = self.without = self.longest = 0
