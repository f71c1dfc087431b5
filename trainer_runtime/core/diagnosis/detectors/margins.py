"""A learnt preference is lost: `margin_collapse`.

DPO, KTO and reward models are trained to score the chosen answer above the rejected one; the margin
between the two (`rewards/margins`, `margin`) rises from 0. It has collapsed where, in three checks
in a row, the mean of its newest 16 values lies below a quarter of the highest mean of 32 values, or
half of the margin is lost and at most half of the newest 32 steps' pairs are ranked correctly.
Either fall must be six standard errors deep, since the best of many means is a lucky one; and only
a margin that had been learnt can collapse: its mean must have been five standard errors above 0.
Below 0 the rejected answers are preferred: that is critical.

In a DPO run whose labels were swapped at step 61 (TRL 1.16, 120 steps) it was found at step 84 with
onset 61. It was not found in the same run without the swap, nor in 280 times 2,000 steps of margins
that rise to 0 to 2 with a scatter of up to ten times that.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import deviation_of, mean_of

MARGINS = ("rewards/margins", "margin")
ACCURACIES = ("rewards/accuracies", "accuracy")
_SIZE, _NEWEST = 32, 16
_EVERY = 4
_CHECKS = 3
_LEARNT_ERRORS, _LOST_ERRORS = 5.0, 6.0
_LOST = 0.25
_HALF = 0.5
_CHANCE = 0.5


_CODES = {
    "margin_collapse": Code(
        "The margin between chosen and rejected answers had been learnt and is lost again.",
        (
            "margin {margin}, {peak} at step {peak_step}; {lowest} at its lowest",
            "share of pairs ranked correctly {accuracy}",
            "lr {lr}",
        ),
        (
            "Check the pairs from the onset on for swapped labels or a different source.",
            "If the pairs are correct, the learning rate is the usual cause.",
        ),
        remedies=("rewind_halve_lr", "rewind_skip_data", "rewind_raise_beta"),
        announces_rewind=True,
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class Margins(Detector):
    """`peak` is the highest mean of 32 margins, at `peak_step`, None until they are learnt;
    `scatter` is their deviation there; `best` is the best mean of 32 accuracies. `low_since` is the
    first step of the newest margins that are below half of the peak."""

    codes = _CODES
    reads = (*MARGINS, *ACCURACIES)
    restarts_with_phase = True

    margins: deque[float] = field(default_factory=lambda: deque(maxlen=_SIZE))
    accuracies: deque[float] = field(default_factory=lambda: deque(maxlen=_SIZE))
    points: int = 0
    peak: float | None = None
    peak_step: int = 0
    scatter: float = 0.0
    best: float = 0.0
    high: int = 0
    low_since: int | None = None
    checks: int = 0

    def _accuracy(self, value: float) -> None:
        self.accuracies.append(value)
        if len(self.accuracies) == _SIZE:
            self.best = max(self.best, mean_of(self.accuracies))

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        """Take in a margin, which is evaluated every fourth time, or an accuracy."""
        if key in ACCURACIES:
            self._accuracy(value)
            return
        self.margins.append(value)
        self.points += 1
        if self.peak is not None:
            self._follow(step, value, self.peak)
        if self.points % _EVERY or len(self.margins) < _NEWEST:
            return
        if len(self.margins) == _SIZE:
            self._learn(step)
        if self.peak is None:
            return
        newest = list(self.margins)[-_NEWEST:]
        mean = mean_of(newest)
        self.checks = self.checks + 1 if self._has_collapsed(newest, mean, self.peak) else 0
        if self.checks >= _CHECKS:
            self._report(context, step, mean, self.peak)
        elif mean > _HALF * self.peak:
            context.ledger.close("margin_collapse", step)

    def restart(self, context: DetectorContext, step: int) -> None:
        """The series continues from `step`. An earlier peak still counts: a resume with other pairs
        can lose the margin just as a change of data within an attempt can."""
        self.margins.clear()
        self.accuracies.clear()
        self.points = self.checks = self.high = 0
        self.low_since, self.best = None, 0.0
        if step == 0 or step < self.peak_step:
            self.peak = None

    def _learn(self, step: int) -> None:
        mean, deviation = mean_of(self.margins), deviation_of(self.margins)
        learnt = mean > _LEARNT_ERRORS * deviation / math.sqrt(_SIZE)
        if mean > self.peak if self.peak is not None else learnt:
            self.peak, self.peak_step, self.scatter = mean, step, deviation

    def _follow(self, step: int, value: float, peak: float) -> None:
        """Track where the margins left their peak; two high values in a row are back at it."""
        self.high = self.high + 1 if value >= _HALF * peak else 0
        if self.high >= 2:
            self.low_since = None
        elif self.high == 0 and self.low_since is None:
            self.low_since = step

    def _has_collapsed(self, newest: list[float], mean: float, peak: float) -> bool:
        scatter = max(self.scatter, deviation_of(newest))
        error = scatter * math.sqrt(1 / _NEWEST + 1 / _SIZE)
        if mean < _LOST * peak and peak - mean > _LOST_ERRORS * error:
            return True
        if len(self.accuracies) < _SIZE or mean >= _HALF * peak:
            return False
        ranked = mean_of(self.accuracies)
        error = deviation_of(self.accuracies) * math.sqrt(2 / _SIZE)
        return ranked <= _CHANCE and self.best - ranked > _LOST_ERRORS * error

    def _report(self, context: DetectorContext, step: int, mean: float, peak: float) -> None:
        onset = step if self.low_since is None else self.low_since
        open_one = context.ledger.get("margin_collapse")
        entry = open_one or context.ledger.open(
            "margin_collapse",
            onset,
            "warning",
            step=onset,
            confidence=0.9,
            values={"peak": peak, "peak_step": self.peak_step, "lr": context.latest.get("lr")},
            remedies=_CODES["margin_collapse"].remedies,
        )
        accuracy = mean_of(self.accuracies) if self.accuracies else None
        lowest = entry.values.get("lowest")
        lowest = min(lowest, mean) if isinstance(lowest, float) else mean
        figures = {"margin": mean, "lowest": lowest, "accuracy": accuracy, "last_step": step}
        entry.values |= figures
        if mean <= 0:
            entry.grow("critical")
