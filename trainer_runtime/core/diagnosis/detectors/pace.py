"""The run's pace: seconds from one logged step to the next."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_NEWEST = 512
_LONGEST_COUNTED = 20.0  # times the usual interval: more is a pause or a clock change
_LONGEST_PAUSE_S = 3600.0
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """`intervals` are seconds between logged steps, except those with a pause (an evaluation or a
    save) in between, which count towards `longest_pause_s`. `paused`: there was a pause since the
    newest step. The newest pause was at step `pause_at`, `pause_every` steps after the previous."""

    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    usual_s: float = 0.0
    longest_pause_s: float = 0.0
    paused: bool = False
    pause_at: int | None = None
    pause_every: int = 0
    last_t: float | None = None

    def step(self, t: float) -> float:
        """A step was logged at `t`. Returns the seconds of work since the previous one, or 0."""
        last, self.last_t = self.last_t, t
        paused, self.paused = self.paused, False
        if last is None or t <= last:
            return 0.0
        seconds = t - last
        if self.usual_s and seconds > _LONGEST_COUNTED * self.usual_s:
            if paused:
                self._record_pause(seconds)
            self.intervals.append(min(seconds, _LONGEST_COUNTED * self.usual_s))
            return self.usual_s
        if paused:
            self._record_pause(seconds)
            return min(seconds, self.usual_s or seconds)
        self.intervals.append(seconds)
        self.usual_s += (seconds - self.usual_s) * (_WEIGHT if self.usual_s else 1.0)
        return seconds

    def pause(self, step: int, silent_s: float) -> None:
        """An evaluation or a save at `step` was reported, after `silent_s` without a step."""
        self.paused = True
        self._record_pause(silent_s)
        if self.pause_at is not None and step > self.pause_at:
            self.pause_every = step - self.pause_at
        self.pause_at = step

    def pause_is_due(self, step: int) -> bool:
        """Whether the next pause is due at `step`, by the distance of the last two."""
        return bool(self.pause_every) and step - (self.pause_at or 0) >= self.pause_every

    def _record_pause(self, seconds: float) -> None:
        # A longer one is more likely a clock change than an evaluation.
        self.longest_pause_s = max(self.longest_pause_s, min(seconds, _LONGEST_PAUSE_S))

    def restart(self) -> None:
        """The steps start again; the known intervals remain the best estimate."""
        self.last_t, self.paused, self.pause_at = None, False, None

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the intervals; 0 while none is known."""
        ranked = sorted(self.intervals)
        return ranked[int(0.99 * (len(ranked) - 1))] if ranked else 0.0
