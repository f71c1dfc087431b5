"""Where an attempt's time went, folded from its events: steps, evaluations, saves, stalls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

# Of a program that reports no step times: one that takes so many times the usual contains more
# than steps. With a reported time, and longer than a minute, it has stalled.
_TIMES_PLAIN = 2.0
_TIMES_STALLED = 10.0
_LEAST_STALLED_S = 60.0
_WEIGHT = 0.1
_MOST_MARKS = 128


@dataclass(slots=True)
class TimeSpent:
    """Seconds since the trainer's first step was due, at `begun_t`, up to `mark_t`.

    What is in none of `trained_s`, `evaluated_s`, `saved_s` and `stalled_s` was not reported: a
    sample, a log, a pause. A program that reports neither step times nor how long it saved is
    judged by its usual step, and its start ends with its first step. `marks`: (step, `trained_s` by
    then), at most 128, evenly thinned.
    """

    begun_t: float | None = None
    mark_t: float = 0.0
    mark_step: int = 0
    trained_s: float = 0.0
    evaluated_s: float = 0.0
    saved_s: float = 0.0
    stalled_s: float = 0.0
    usual_s: float | None = None
    excess_s: float = 0.0
    save_is_open: bool = False
    every: int = 1
    count: int = 0
    marks: list[tuple[int, float]] = field(default_factory=list)

    def started(self, t: float, step: int) -> None:
        """The first step is due."""
        if self.begun_t is None:
            self.begun_t, self.mark_t, self.mark_step = t, t, step
            self.marks.append((step, 0.0))

    def stepped(self, t: float, step: int, step_time_s: float | None) -> None:
        """A step is done; `step_time_s` where the loop has measured it."""
        steps, gap_s = step - self.mark_step, max(0.0, t - self.mark_t)
        if self.begun_t is None or steps < 1:
            return
        measured_s = _seconds(step_time_s)
        if measured_s is None and self.count == 0:
            self.begun_t, self.mark_t, self.mark_step = t, t, step
            self.marks, self.count = [(step, 0.0)], 1
            return
        self._train(steps, gap_s, None if measured_s is None else measured_s * steps)
        self.mark_t, self.mark_step = max(t, self.mark_t), step
        self._mark(step)

    def evaluated(self, t: float, step: int, seconds: float | None) -> None:
        """An evaluation is done; `seconds` where the loop has measured it."""
        if self.begun_t is None:
            return
        # Of steps that are not reported yet.
        ahead_s = 0.0
        measured_s = _seconds(seconds)
        if measured_s is None:
            ahead_s = (self.usual_s or 0.0) * max(0, step - self.mark_step)
            measured_s = max(0.0, t - self.mark_t - ahead_s)
        self.evaluated_s += measured_s
        self.mark_t = max(self.mark_t, t - ahead_s)

    def saved(self, stall_s: float | None) -> None:
        """A checkpoint is saved; `stall_s`: how long the training waited, where it is known."""
        waited_s = _seconds(stall_s)
        if waited_s is None:
            self.save_is_open = True
        else:
            self.saved_s += waited_s

    def trained_until(self, step: float) -> float:
        """Seconds of the steps up to this one, interpolated between marks."""
        before = (self.mark_step, 0.0) if not self.marks else self.marks[0]
        for mark in [*self.marks, (self.mark_step, self.trained_s)]:
            if mark[0] >= step:
                span = mark[0] - before[0]
                share = (step - before[0]) / span if span else 1.0
                return before[1] + max(0.0, share) * (mark[1] - before[1])
            before = mark
        return self.trained_s

    def to_dict(self) -> dict[str, Any]:
        """For immediate serialization: the marks are not copies."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> TimeSpent:
        """As `asdict` described it, also after a journey through JSON; empty for None."""
        body = dict(data or {})
        body["marks"] = [(int(step), float(seconds)) for step, seconds in body.get("marks", ())]
        return cls(**body)

    def _train(self, steps: int, gap_s: float, measured_s: float | None) -> None:
        """Divide the time of these steps; what is overdue by far was a stall."""
        usual_s = None if self.usual_s is None else self.usual_s * steps
        training_s = gap_s if measured_s is None else min(gap_s, measured_s)
        if usual_s is not None and training_s > max(_LEAST_STALLED_S, _TIMES_STALLED * usual_s):
            self.stalled_s += training_s - usual_s
            self.trained_s += usual_s
            return
        if measured_s is None and usual_s is not None and gap_s > _TIMES_PLAIN * usual_s:
            training_s = usual_s
        else:
            newest_s = training_s / steps
            earlier_s = newest_s if self.usual_s is None else self.usual_s
            self.usual_s = earlier_s + _WEIGHT * (newest_s - earlier_s)
        self.trained_s += training_s
        self._take_excess(gap_s - training_s)

    def _take_excess(self, excess_s: float) -> None:
        """What no step explains, a program's save took, which is reported some steps later."""
        self.excess_s = max(self.excess_s, excess_s)
        if self.save_is_open:
            self.saved_s += self.excess_s
            self.excess_s, self.save_is_open = 0.0, False

    def _mark(self, step: int) -> None:
        self.count += 1
        if self.count % self.every:
            return
        self.marks.append((step, self.trained_s))
        if len(self.marks) > _MOST_MARKS:
            self.marks, self.every = self.marks[::2], self.every * 2


_FIELDS = tuple(item.name for item in fields(TimeSpent))


def _seconds(value: float | None) -> float | None:
    """A duration that can be: anybody may have written it."""
    return value if value is not None and 0 <= value < math.inf else None
