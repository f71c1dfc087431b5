"""The loss rises and does not recover: `divergence`.

A slow rise never lies far above its own neighbours, so the spike rule misses it. Here the lower
quartile of the newest 64 points is compared with the lowest median that 64 points ever had: where
three quarters of them lie 10 % above it, in three checks in a row (8 points apart), the loss does
not recover by itself. No spike of up to 40 steps causes that. On the healthy public curves (32,338
steps) the quartile was never more than 0.4 % above. The lowest median is the smallest since the
attempt began or a phase changed. The onset is the middle of the last window whose median was still
as low, so that a rewind resumes from before the rise, not from before its detection.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.early_divergence import EarlyDivergence
from trainer_runtime.core.diagnosis.detectors.window import times

_EVERY_POINTS = 8
_MIN_POINTS = 24
_RISE = 1.10
_MIN_RISE = 0.05  # nats: the loss of a memorised set fluctuates by less
_BACK = 1.05
_CHECKS = 3
_FAR = 1.5
_HALF_A_WINDOW = 4  # checks


_CODES = {
    "divergence": Code(
        "The loss keeps rising: most of its newest values lie above its best level.",
        (
            "median of the newest losses {loss}, {lowest} at step {lowest_step}: {factor} times",
            "lr {lr}",
        ),
        ("The learning rate is the most likely cause, then a change in the data.",),
        remedies=("rewind_halve_lr", "rewind_skip_data", "rewind_tighter_clip"),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class Divergence(Detector):
    """`early` judges the first points. `low` is the lowest median so far, at `low_step`;
    `checked_at` are the steps of the checks within half a window; `rising_since` is the step where
    the loss was last at its lowest."""

    codes = _CODES
    judges_learning = True
    reads = ("loss",)
    restarts_with_phase = True

    early: EarlyDivergence = field(default_factory=EarlyDivergence)
    points: int = 0
    low: float | None = None
    low_step: int = 0
    checks: int = 0
    rising_since: int = 0
    checked_at: deque[int] = field(default_factory=lambda: deque(maxlen=_HALF_A_WINDOW))

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Evaluate the window of losses, which includes this point, every eighth time."""
        if not self.early.is_over:
            self.early.point(context, step, value, _CODES["divergence"].remedies)
        if self.early.is_open:
            return
        window = context.loss.window
        self.points += 1
        if self.points % _EVERY_POINTS:
            return
        began = self.checked_at[0] + 1 if self.checked_at else step
        self.checked_at.append(step)
        if len(window) < _MIN_POINTS:
            return
        median = window.median
        if self.low is None or median < self.low:
            self.low, self.low_step = median, step
        quartile = window.quantile(0.25)
        if median < _BACK * self.low and not self.checks:
            self.rising_since = began
        risen = self.low > 0 and quartile > max(_RISE * self.low, self.low + _MIN_RISE)
        self.checks = self.checks + 1 if risen else 0
        if self.checks >= _CHECKS:
            self._report(context, step, median)
        elif median < _BACK * self.low and context.ledger.get("divergence") is not None:
            context.ledger.close("divergence", step)

    def _report(self, context: DetectorContext, step: int, median: float) -> None:
        low = self.low or 0.0
        entry = context.ledger.open(
            "divergence",
            self.rising_since,
            "warning",
            step=self.rising_since,
            confidence=0.85,
            values={"lowest": low, "lowest_step": self.low_step, "lr": context.latest.get("lr")},
            remedies=_CODES["divergence"].remedies,
        )
        entry.values |= {"loss": median, "factor": times(median, low), "last_step": step}
        if median > _FAR * low:
            entry.grow("critical")
            entry.confidence = 0.95
