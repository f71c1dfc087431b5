"""Preferences are unlearnt: `margin_collapse`.

DPO, KTO and reward models are trained to score the chosen answer above the rejected one; the margin
between the two (`rewards/margins`, `margin`) rises from 0. It has collapsed where the mean of its
newest 16 values lies below a quarter of the highest that 32 values ever had, or where of the newest
32 steps' pairs no more than half are ranked rightly and half of the margin is lost, at three looks
in a row. Either fall must be six standard errors deep, since the best of many means is a lucky one;
and only a margin that had been learnt can collapse: its mean must have lain five standard errors
above 0. Below 0 the rejected answers are preferred: that is critical.

In a DPO whose labels were swapped at step 61 (TRL 1.16, 120 steps) it was told at step 84 with the
step 61 as its onset; in the same run without the swap never, nor in 280 times 2,000 steps of
margins that rise to 0 to 2 with a scatter of up to ten times that.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.window import deviation_of, mean_of
from trainer_runtime.core.diagnosis.remedies import OF_SERIES

MARGINS = ("rewards/margins", "margin")
ACCURACIES = ("rewards/accuracies", "accuracy")
_SIZE, _NEWEST = 32, 16
_EVERY = 4
_LOOKS = 3
_LEARNT_ERRORS, _LOST_ERRORS = 5.0, 6.0
_LOST = 0.25
_HALF = 0.5
_CHANCE = 0.5


@dataclass(slots=True)
class Margins:
    """`peak` is the highest mean of 32 margins since they were learnt, at `peak_step`, None before,
    and `scatter` their deviation there; `best` the best mean of 32 accuracies. `low_since`: the
    first of the newest margins that are below half of the peak."""

    margins: deque[float] = field(default_factory=lambda: deque(maxlen=_SIZE))
    accuracies: deque[float] = field(default_factory=lambda: deque(maxlen=_SIZE))
    points: int = 0
    peak: float | None = None
    peak_step: int = 0
    scatter: float = 0.0
    best: float = 0.0
    high: int = 0
    low_since: int | None = None
    looks: int = 0

    def accuracy(self, value: float) -> None:
        self.accuracies.append(value)
        if len(self.accuracies) == _SIZE:
            self.best = max(self.best, mean_of(self.accuracies))

    def point(self, board: Board, step: int, value: float) -> None:
        """Take in a margin, and look every fourth time."""
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
        self.looks = self.looks + 1 if self._has_collapsed(newest, mean, self.peak) else 0
        if self.looks >= _LOOKS:
            self._tell(board, step, mean, self.peak)
        elif mean > _HALF * self.peak:
            board.ledger.close("margin_collapse", step)

    def restart(self, step: int = 0) -> None:
        """The series goes on from `step`, where a peak before it still counts: a resume with other
        pairs unlearns as well as a change on the way does."""
        self.margins.clear()
        self.accuracies.clear()
        self.points = self.looks = self.high = 0
        self.low_since, self.best = None, 0.0
        if step == 0 or step < self.peak_step:
            self.peak = None

    def _learn(self, step: int) -> None:
        mean, deviation = mean_of(self.margins), deviation_of(self.margins)
        learnt = mean > _LEARNT_ERRORS * deviation / math.sqrt(_SIZE)
        if mean > self.peak if self.peak is not None else learnt:
            self.peak, self.peak_step, self.scatter = mean, step, deviation

    def _follow(self, step: int, value: float, peak: float) -> None:
        """Where the margins left their height: two high ones in a row are back on it."""
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

    def _tell(self, board: Board, step: int, mean: float, peak: float) -> None:
        onset = step if self.low_since is None else self.low_since
        open_one = board.ledger.get("margin_collapse")
        found = open_one or board.ledger.open(
            "margin_collapse",
            onset,
            "warning",
            step=onset,
            confidence=0.9,
            values={"peak": peak, "peak_step": self.peak_step, "lr": board.latest.get("lr")},
            remedies=OF_SERIES["margin_collapse"],
        )
        accuracy = mean_of(self.accuracies) if self.accuracies else None
        lowest = found.values.get("lowest")
        lowest = min(lowest, mean) if isinstance(lowest, float) else mean
        told = {"margin": mean, "lowest": lowest, "accuracy": accuracy, "last_step": step}
        found.values |= told
        if mean <= 0:
            found.grow("critical")
