"""The loss rises and stays high within the first points of a log: `divergence`.

A fine-tuning logs a few dozen means. Where the loss fell and then five means in a row lie 1.5 times
above all that came before its lowest, with a median of twice that, scatter does not explain it.
After 32 points the windows of `divergence.py` are full enough and judge instead; a jump that the
spike rule sees is its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.window import median_of, times

_MOST_POINTS = 32
_IN_A_ROW = 5
_RISE, _MEDIAN_RISE = 1.5, 2.0
_MIN_RISE = 0.5  # nats


@dataclass(slots=True)
class EarlyDivergence:
    """`low` is the lowest loss, at `low_step`; `ceiling` the highest one up to it, `highest` of
    all. `risen` are the newest ones far above it, since `rising_since`; `is_open`: reported.
    `is_over`: nothing more is to be judged here."""

    points: int = 0
    low: float | None = None
    low_step: int = 0
    ceiling: float = 0.0
    highest: float = 0.0
    risen: deque[float] = field(default_factory=lambda: deque(maxlen=_IN_A_ROW))
    rising_since: int = 0
    is_open: bool = False
    is_over: bool = False

    def point(
        self, context: DetectorContext, step: int, value: float, remedies: tuple[str, ...]
    ) -> None:
        self.points += 1
        self.is_over = self.points >= _MOST_POINTS and not self.is_open
        self.highest = max(self.highest, value)
        if self.low is None or value < self.low:
            self.low, self.low_step, self.ceiling = value, step, self.highest
        if value <= max(_RISE * self.ceiling, self.low + _MIN_RISE):
            self.risen.clear()
            if self.is_open:
                context.ledger.close("divergence", step)
                self.is_open = False
            return
        if not self.risen:
            self.rising_since = step
        self.risen.append(value)
        if context.ledger.get("loss_spike") is None and self.ceiling > self.low > 0:
            self._judge(context, step, remedies)

    def _judge(self, context: DetectorContext, step: int, remedies: tuple[str, ...]) -> None:
        median = median_of(sorted(self.risen))
        if len(self.risen) < _IN_A_ROW or median < _MEDIAN_RISE * self.ceiling:
            return
        low = self.low or 0.0
        entry = context.ledger.open(
            "divergence",
            self.rising_since,
            "critical",
            step=self.rising_since,
            confidence=0.85,
            values={"lowest": low, "lowest_step": self.low_step, "lr": context.latest.get("lr")},
            remedies=remedies,
        )
        entry.values |= {"loss": median, "factor": times(median, low), "last_step": step}
        self.is_open = True
