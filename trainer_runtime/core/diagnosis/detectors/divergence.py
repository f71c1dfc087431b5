"""The loss rises for good: `divergence`.

A slow rise never lies far above its own neighbours, so the spike's rule is blind to it. Here the
lower quartile of the newest 64 points is held against the lowest median that 64 points ever had:
where three quarters of them lie 10 % above it, at three looks in a row (8 points apart), the loss
is not coming back by itself. No spike of up to 40 steps can do that. On the healthy public curves
(32,338 steps) the quartile never came to more than 0.4 % above. The lowest median is the smallest
since the attempt began or a phase changed. The onset is the middle of the last window whose median
was still as low: a rewind goes back to before the rise, not to before it was noticed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.window import Window, times
from trainer_runtime.core.diagnosis.remedies import OF_SERIES

_EVERY_POINTS = 8
_FEWEST = 24
_RISE = 1.10
_LEAST_RISE = 0.05  # nats: below, a memorised set's loss wanders
_BACK = 1.05
_LOOKS = 3
_FAR = 1.5
_HALF_A_WINDOW = 4  # looks


@dataclass(slots=True)
class Divergence:
    """`low` is the lowest median so far, at `low_step`; `looked_at` are the steps of the
    looks within half a window, `rising_since` is where the loss was last as low as ever."""

    points: int = 0
    low: float | None = None
    low_step: int = 0
    looks: int = 0
    rising_since: int = 0
    looked_at: deque[int] = field(default_factory=lambda: deque(maxlen=_HALF_A_WINDOW))

    def point(self, board: Board, step: int, window: Window) -> None:
        """Look at the window of losses, which holds the point at `step`, every eighth time."""
        self.points += 1
        if self.points % _EVERY_POINTS:
            return
        began = self.looked_at[0] + 1 if self.looked_at else step
        self.looked_at.append(step)
        if len(window) < _FEWEST:
            return
        median = window.median
        if self.low is None or median < self.low:
            self.low, self.low_step = median, step
        quartile = window.quantile(0.25)
        if median < _BACK * self.low and not self.looks:
            self.rising_since = began
        risen = self.low > 0 and quartile > max(_RISE * self.low, self.low + _LEAST_RISE)
        self.looks = self.looks + 1 if risen else 0
        if self.looks >= _LOOKS:
            self._tell(board, step, median)
        elif median < _BACK * self.low and board.ledger.get("divergence") is not None:
            board.ledger.close("divergence", step)

    def restart(self) -> None:
        self.points = self.looks = 0
        self.low = None
        self.looked_at.clear()

    def _tell(self, board: Board, step: int, median: float) -> None:
        low = self.low or 0.0
        found = board.ledger.open(
            "divergence",
            self.rising_since,
            "warning",
            step=self.rising_since,
            confidence=0.85,
            values={"lowest": low, "lowest_step": self.low_step, "lr": board.latest.get("lr")},
            remedies=OF_SERIES["divergence"],
        )
        found.values |= {"loss": median, "factor": times(median, low), "last_step": step}
        if median > _FAR * low:
            found.grow("critical")
            found.confidence = 0.95
