"""Steps continue, but their losses are no longer logged: `loss_missing`.

Megatron leaves `lm loss` out of the lines of steps where it is NaN. A loss that came every few
steps and then not for 32, nor for four times its longest gap, is worth a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext

CODE = "loss_missing"
_FEWEST_LOSSES = 8
_FEWEST_STEPS = 32
_TIMES_LONGEST = 4


_CODES = {
    "loss_missing": Code(
        "Steps continue, but the log no longer has their loss: Megatron leaves out a loss that is "
        "NaN; otherwise the program has stopped logging it.",
        ("last loss at step {last_loss_step}, none at {steps_without} steps since",),
        ("Check the gradient norm and the skipped or NaN iterations of the steps since.",),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class MissingLoss(Detector):
    """`seen_at` is the number of steps at the newest loss, which was at `last_step`; `longest` is
    the largest number between two losses so far, 0 where it was always one."""

    codes = _CODES
    reads_raw = ("loss",)

    losses: int = 0
    last_step: int = 0
    seen_at: int = 0
    longest: int = 0

    def step(self, context: DetectorContext, step: int) -> None:
        without = context.steps_seen - self.seen_at
        if without <= _FEWEST_STEPS or self.losses < _FEWEST_LOSSES:
            return
        if without <= _TIMES_LONGEST * self.longest:
            return
        if context.is_reinforced or context.ledger.get("nan_grad"):
            return  # the loss of a policy means little, and many log none
        entry = context.ledger.open(
            CODE,
            self.last_step,
            "warning",
            step=self.last_step,
            confidence=0.7,
            values={"last_loss_step": self.last_step},
        )
        entry.values["steps_without"] = without

    def raw(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        seen = context.steps_seen
        if seen != self.seen_at + 1:
            self.longest = max(self.longest, seen - self.seen_at)
            context.ledger.close(CODE, step)
        self.losses += 1
        self.seen_at, self.last_step = seen, step
