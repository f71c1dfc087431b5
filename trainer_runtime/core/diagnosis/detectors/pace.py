"""The run's own step clock: how long it takes from one logged step to the next."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_NEWEST = 512
_LONGEST_COUNTED = 20.0  # times the usual interval: more is a pause or a clock that was set
_LONGEST_PAUSE_S = 3600.0
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """`intervals` are seconds between logged steps; those with an evaluation or a save in between
    are kept apart, in `longest_pause_s`. `paused`: since the newest step there was one; the newest
    was at the step `pause_at`, `pause_every` steps after the one before."""

    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    usual_s: float = 0.0
    longest_pause_s: float = 0.0
    paused: bool = False
    pause_at: int | None = None
    pause_every: int = 0
    last_t: float | None = None

    def step(self, t: float) -> float:
        """A step was logged at `t`; the seconds of work since the one before, as far as known."""
        last, self.last_t = self.last_t, t
        paused, self.paused = self.paused, False
        if last is None or t <= last:
            return 0.0
        seconds = t - last
        if self.usual_s and seconds > _LONGEST_COUNTED * self.usual_s:
            if paused:
                self._lasted(seconds)
            self.intervals.append(min(seconds, _LONGEST_COUNTED * self.usual_s))
            return self.usual_s
        if paused:
            self._lasted(seconds)
            return min(seconds, self.usual_s or seconds)
        self.intervals.append(seconds)
        self.usual_s += (seconds - self.usual_s) * (_WEIGHT if self.usual_s else 1.0)
        return seconds

    def pause(self, step: int, silent_s: float) -> None:
        """An evaluation or a save at `step` was told of, after so many seconds of silence."""
        self.paused = True
        self._lasted(silent_s)
        if self.pause_at is not None and step > self.pause_at:
            self.pause_every = step - self.pause_at
        self.pause_at = step

    def pause_is_due(self, step: int) -> bool:
        """Whether the next pause would come at about `step`, by the distance of the last two."""
        return bool(self.pause_every) and step - (self.pause_at or 0) >= self.pause_every

    def _lasted(self, seconds: float) -> None:
        # Longer is a clock that was set, more likely than an evaluation.
        self.longest_pause_s = max(self.longest_pause_s, min(seconds, _LONGEST_PAUSE_S))

    def restart(self) -> None:
        """The steps begin anew; how long one takes is still the best guess."""
        self.last_t, self.paused, self.pause_at = None, False, None

    @property
    def p99_s(self) -> float:
        """The interval that 99 of 100 stay under; 0 while none is known."""
        ranked = sorted(self.intervals)
        return ranked[int(0.99 * (len(ranked) - 1))] if ranked else 0.0
