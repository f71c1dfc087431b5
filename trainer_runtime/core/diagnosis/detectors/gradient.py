"""The gradient norm rises ahead of the loss: `grad_norm_rising`.

The spike rule on `grad_norm`, at 3 x the median instead of 1.12 x (reasons: `detector_context.py`).
Before BLOOM-176B's first spike the norm rose one to four steps ahead of the loss. Absolute limits
(> 100) miss it elsewhere: llm.c's norms stay far below. Norms that the newest 64 points had before
announce nothing: those of a memorised set are near 0 but for single rows. It is a warning only and
proposes no rewind, because the loss may stay normal.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector import REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import times

_NORMAL_AGAIN = 4  # points in a row
_LEVEL_POINTS = 400


_CODES = {
    "grad_norm_rising": Code(
        "The gradient norm rose far above its usual level; a loss spike may follow.",
        ("gradient norm {grad_norm_peak} against {grad_norm_normal}: {factor} times", "lr {lr}"),
        ("Watch the next steps; with a checkpoint now a rewind would lose little.",),
        remedies=("tighter_clip", "denser_checkpoints"),
        announces_rewind=True,
        closed_by=(REWIND,),
    ),
}


@dataclass(slots=True)
class Gradient(Detector):
    """`median` is that of the norm before the open rise."""

    codes = _CODES
    judges_learning = True
    reads = ("grad_norm",)

    median: float = 0.0
    normal: int = 0
    points: int = 0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        rule = context.gradient
        odd = rule.take(step, value)
        if self.points:
            self._update_open(context, step, value)
        elif odd and rule.is_met and rule.is_unseen(value):
            self._open(context, step, value)

    def _open(self, context: DetectorContext, step: int, value: float) -> None:
        onset, at_onset, self.median = context.gradient.first_odd
        self.normal, self.points = 0, 1
        peak = max(value, at_onset)
        spike = context.ledger.get("loss_spike")
        context.ledger.open(
            "grad_norm_rising",
            onset,
            "warning",
            step=onset,
            confidence=0.7,
            values={
                "grad_norm_normal": self.median,
                "grad_norm": at_onset,
                "grad_norm_peak": peak,
                "factor": times(peak, self.median),
                "lr": context.latest.get("lr"),
                "spike_step": None if spike is None else spike.onset,
            },
            remedies=_CODES["grad_norm_rising"].remedies,
        )

    def _update_open(self, context: DetectorContext, step: int, value: float) -> None:
        entry = context.ledger.get("grad_norm_rising")
        if entry is None:
            self.points = 0
            return
        self.points += 1
        peak = entry.values["grad_norm_peak"]
        if isinstance(peak, (int, float)) and value > peak:
            entry.values |= {"grad_norm_peak": value, "factor": times(value, self.median)}
        high = value > context.gradient.ratio * self.median
        self.normal = 0 if high else self.normal + 1
        if self.normal >= _NORMAL_AGAIN or self.points > _LEVEL_POINTS:
            context.ledger.close("grad_norm_rising", step)
            self.points = 0
