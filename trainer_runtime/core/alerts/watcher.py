"""Evaluates one alert's condition over the records of a run, one at a time and in order.

Pure: the same records give the same onsets, so reading a run's files again produces the same
messages. The state between records can be serialized (`to_dict`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainer_runtime.core.alerts.alert import Alert, Onset
from trainer_runtime.core.alerts.condition import (
    FindingCondition,
    MetricCondition,
    SilenceCondition,
    StateCondition,
)
from trainer_runtime.core.policy.endings import EndReason
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.journal_lines import FindingReported, StateEntered, journal_line
from trainer_runtime.core.protocol.trainer_lines import Warned, trainer_line

# A value that oscillates around its limit may fire this often per hour, then is muted.
MOST_AN_HOUR = 10
_HOUR_S = 3600.0
_CODE = re.compile(r"[a-z][a-z0-9_]{1,59}")
_REASONS = frozenset(reason.value for reason in EndReason)
# The guard's own warnings end an attempt; that of a failed save doesn't.
_MILD = frozenset({"checkpoint_failed"})


class _Reported(NamedTuple):
    """A finding of the supervisor's, or a warning of the trainer's."""

    attempt: int
    code: str
    step: int | None
    severity: str


class Watcher:
    """One alert of one run. Each method returns the onset that a record causes, or None."""

    def __init__(self, alert: Alert, memory: Mapping[str, Any] | None = None) -> None:
        self.alert = alert
        self._condition = alert.condition
        memory = memory or {}
        self._attempt = int(memory.get("attempt", 0))
        self._row = int(memory.get("row", 0))
        self._row_began: tuple[float, float] | None = _pair(memory.get("row_began"))
        self._is_met = bool(memory.get("is_met", False))
        self._marks = list(memory.get("marks", []))
        self._onset_times = [float(t) for t in memory.get("onset_times", [])]

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self._attempt,
            "row": self._row,
            "row_began": list(self._row_began) if self._row_began else None,
            "is_met": self._is_met,
            "marks": self._marks,
            "onset_times": self._onset_times,
        }

    @property
    def key(self) -> str | None:
        """The metric that it watches; None where it watches none."""
        condition = self._condition
        return condition.key if isinstance(condition, MetricCondition) else None

    @property
    def reads_events(self) -> bool:
        """Whether `event` can cause an onset."""
        return not (
            self.key is not None
            or self.waits_for_loss
            or isinstance(self._condition, SilenceCondition)
        )

    @property
    def waits_for_loss(self) -> bool:
        """Whether the host's silence counts rather than the trainer's."""
        condition = self._condition
        return isinstance(condition, StateCondition) and condition.state == "lost"

    def point(self, attempt: int, x: int, t: float, value: float) -> Onset | None:
        """Take in one value of `key`; `x`: its step, or milliseconds for telemetry (attempt 0)."""
        condition = self._condition
        if not isinstance(condition, MetricCondition) or t < self.alert.since_t:
            return None
        if attempt != self._attempt:
            self._attempt, self._row, self._row_began, self._is_met = attempt, 0, None, False
        met = condition.met_by(value)
        if met is None:
            return None
        if not met:
            self._row, self._row_began, self._is_met = 0, None, False
            return None
        self._row += 1
        if self._row_began is None:
            self._row_began = (float(x), t)
        began_x, began_t = self._row_began
        if self._is_met or not _is_long_enough(condition, self._row, t - began_t):
            return None
        self._is_met = True
        slots = {"value": value, "points": self._row, "lasted_s": t - began_t}
        mark = f"{condition.key}:{int(began_x)}"
        return self._onset(Onset(attempt, mark, t, x if attempt else None, slots))

    def event(self, attempt: int, event: Event) -> Onset | None:
        """Take in one event of an attempt, or of the journal (attempt 0)."""
        if event.t < self.alert.since_t:
            return None
        condition = self._condition
        if isinstance(condition, StateCondition) and attempt == 0:
            line = journal_line(event)
            return self._state(condition, event, line) if isinstance(line, StateEntered) else None
        if isinstance(condition, FindingCondition):
            return self._found(condition, event.t, _reported(attempt, event))
        return None

    def check_elapsed(
        self, now: float, *, state: str, attempt: int, heard_t: float | None, step: int
    ) -> Onset | None:
        """Evaluate silence and loss of contact. `heard_t`: when the trainer last reported anything.

        `state` is the run's, `attempt` the newest, `step` its progress.
        """
        condition = self._condition
        if heard_t is None:
            return None
        slots: dict[str, str | float | int] = {"silent_s": now - heard_t}
        heard_t = max(heard_t, self.alert.since_t)
        if isinstance(condition, SilenceCondition):
            met = state in ("running", "lost") and now - heard_t >= condition.seconds
            mark = f"silence:{heard_t:.3f}"
        elif isinstance(condition, StateCondition) and condition.state == "lost":
            met, mark = state == "lost", f"lost:{heard_t:.3f}"
            slots["state"] = "lost"
        else:
            return None
        if not met:
            return None
        return self._once(Onset(attempt, mark, now, step, slots))

    def _state(self, condition: StateCondition, event: Event, line: StateEntered) -> Onset | None:
        if line.state.value != condition.state:
            return None
        slots: dict[str, str | float | int] = {"state": condition.state}
        if line.reason in _REASONS:
            slots["reason"] = str(line.reason)
        mark = f"{condition.state}:{event.seq}"
        return self._once(Onset(0, mark, event.t, None, slots))

    def _found(
        self, condition: FindingCondition, t: float, found: _Reported | None
    ) -> Onset | None:
        if found is None or not _CODE.fullmatch(found.code):
            return None
        if not condition.met_by(found.code, found.severity):
            return None
        slots = {"code": found.code, "severity": found.severity}
        mark = f"{found.code}@{found.step}"
        return self._once(Onset(found.attempt, mark, t, found.step, slots))

    def _once(self, onset: Onset) -> Onset | None:
        """Ignores repeats: a finding is reported on every change, silence at every check."""
        named = f"{onset.attempt}:{onset.mark}"
        if named in self._marks:
            return None
        self._marks = [*self._marks[-(2 * MOST_AN_HOUR) :], named]
        return self._onset(onset)

    def _onset(self, onset: Onset) -> Onset | None:
        recent = [t for t in self._onset_times if 0 <= onset.t - t < _HOUR_S]
        if len(recent) >= MOST_AN_HOUR:
            return None
        self._onset_times = [*recent, onset.t]
        return onset


def _is_long_enough(condition: MetricCondition, row: int, lasted_s: float) -> bool:
    if condition.lasting_s is not None:
        return lasted_s >= condition.lasting_s
    return row >= condition.count


def _pair(value: Any) -> tuple[float, float] | None:
    return (float(value[0]), float(value[1])) if value else None


def _reported(attempt: int, event: Event) -> _Reported | None:
    if attempt == 0:
        found = journal_line(event)
        if not isinstance(found, FindingReported):
            return None
        finding = found.finding
        return _Reported(found.attempt, finding.code, finding.step, finding.severity)
    line = trainer_line(event)
    if not isinstance(line, Warned):
        return None
    severity = "warning" if line.code in _MILD else "critical"
    return _Reported(attempt, str(line.code), line.step, severity)
