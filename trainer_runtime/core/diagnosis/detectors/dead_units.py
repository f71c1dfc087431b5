"""Hidden units that no token activates, and ever more of them: `dead_units`.

More than half of them, by a tenth more than the fewest that were measured, at three evaluations in
a row. No publication gives a bound: a share that is as high from the start is the style's or a
small evaluation's own, and harms nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.protocol.figures import number_text

_SHARE, _RISE, _IN_A_ROW = 0.5, 0.1, 3
_CODES = {
    "dead_units": Code(
        "More and more hidden units are active for no token: what they have learnt is lost, and "
        "they no longer learn.",
        ("share of dead units {share}, {fewest} at the fewest", "the worst is layer {layer}"),
        (
            "Lower the learning rate or lengthen the warm-up: steps that are too long push units "
            "out of reach.",
            "An activation that passes some gradient below 0 (`model.activation` gelu) keeps units "
            "in reach; it takes a new run.",
        ),
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class DeadUnits(Detector):
    codes = _CODES
    judges_learning = True
    reads = ("dead_units", "dead_units_layer")

    fewest: float = 1.0
    in_a_row: int = 0
    onset: int = 0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        entry = context.ledger.get("dead_units")
        if key == "dead_units_layer":
            if entry is not None:
                entry.values["layer"] = number_text(round(value))
            return
        self.fewest = min(self.fewest, value)
        if value <= _SHARE or value < self.fewest + _RISE:
            self.in_a_row = 0
            context.ledger.close("dead_units", step)
            return
        self.in_a_row += 1
        if self.in_a_row == 1:
            self.onset = step
        if self.in_a_row < _IN_A_ROW:
            return
        entry = context.ledger.open("dead_units", self.onset, "warning", step=self.onset)
        entry.values |= {"share": value, "fewest": self.fewest}
