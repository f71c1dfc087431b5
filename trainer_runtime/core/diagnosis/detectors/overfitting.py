"""Validation rises while training falls: `overfitting`.

Three evaluations in a row above the best by 1 % (five where they are noisy), the last not below the
first, while the training loss is lower than it was at the best. An evaluation of a few batches is
noisy, and the best of many is the luckiest of them (1 % alone raised 12 alarms in 10,000 steps of a
small model): each must lie six standard deviations of the noise above it. The noise is estimated
from second differences, which are 0 for a steady fall. A rise of less than a thousandth does not
count, because no output changes by it. Never critical: nothing is lost, the best checkpoint is
kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector import PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import median_of

_ABOVE = 0.01
# Nats (of one token e^-0.001: its probability falls by a thousandth).
_MIN_RISE = 1e-3
_DEVIATIONS = 6.0
# Of normal noise: the median of absolute second differences, in deviations (0.6745 x sqrt 6).
_SECOND_DIFFERENCE = 1.652
_IN_A_ROW, _IN_A_ROW_OF_NOISY = 3, 5
_CLEARLY = 1.05
_TRAIN_FELL = 0.995


_CODES = {
    "overfitting": Code(
        "The validation loss rises while the training loss still falls.",
        (
            "val_loss {val_loss}, {best_val_loss} at step {best_step}",
            "training loss {loss}, {loss_at_best} then",
        ),
        ("The best checkpoint is kept; more data, fewer epochs or more dropout would help.",),
        closed_by=(REWIND, PHASE),
    ),
}


@dataclass(slots=True)
class Overfitting(Detector):
    """`train_at_best` is the median training loss at the best evaluation; `newest` are the newest
    evaluations."""

    codes = _CODES
    judges_learning = True
    reads = ("val_loss",)
    restarts_with_phase = True

    newest: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    best: float | None = None
    best_step: int = 0
    train_at_best: float | None = None
    above: int = 0
    first_above: float = 0.0

    def point(self, context: DetectorContext, key: str, step: int, value: float) -> None:
        window = context.loss.window
        train = window.median if len(window) else None
        noise = noise_of(self.newest)
        self.newest.append(value)
        if self.best is None or value < self.best:
            self.best, self.best_step, self.train_at_best, self.above = value, step, train, 0
            context.ledger.close("overfitting", step)
            return
        if self.train_at_best is None:
            self.train_at_best = train
        if value <= self.best + max(_ABOVE * self.best, _DEVIATIONS * noise, _MIN_RISE):
            self.above = 0
            return
        if self.above == 0:
            self.first_above = value
        self.above += 1
        needed = _IN_A_ROW if _DEVIATIONS * noise < _ABOVE * self.best else _IN_A_ROW_OF_NOISY
        if self.above >= needed and value >= self.first_above and self._train_fell(train):
            self._report(context, step, value, train)

    def _train_fell(self, train: float | None) -> bool:
        before = self.train_at_best
        return train is not None and before is not None and train < _TRAIN_FELL * before

    def _report(
        self, context: DetectorContext, step: int, value: float, train: float | None
    ) -> None:
        best = self.best or 0.0
        entry = context.ledger.open(
            "overfitting",
            self.best_step,
            "info",
            step=self.best_step,
            confidence=0.8,
            values={
                "best_val_loss": best,
                "best_step": self.best_step,
                "loss_at_best": self.train_at_best,
            },
        )
        entry.values |= {"val_loss": value, "loss": train, "last_step": step}
        if best > 0 and value > _CLEARLY * best:
            entry.grow("warning")


def noise_of(newest: deque[float]) -> float:
    """The evaluations' standard deviation around their trend; 0 while there are too few."""
    values = list(newest)
    seconds = sorted(
        abs(values[i] - 2 * values[i - 1] + values[i - 2]) for i in range(2, len(values))
    )
    return median_of(seconds) / _SECOND_DIFFERENCE if seconds else 0.0
