"""What the metrics store takes and gives: points, series, events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.records import dataclass

FARTHEST_X = 2**53
_COLUMNS = frozenset({"v", "seq", "t", "kind"})
# What was measured at once: x, Unix seconds (None if unknown), and numbers by key as a line has
# them. A plain tuple: one is created for every step of every run.
Measured = tuple[int, float | None, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event other than a metric; `attempt` 0 is the supervisor's journal."""

    attempt: int
    event: Event

    def columns(self) -> tuple[int, int, float, str, int | None, str]:
        """Attempt, seq, time, kind, step, and the fields without a column of their own as JSON."""
        event, step = self.event, self.event.step
        kept = isinstance(step, int) and abs(step) <= FARTHEST_X  # custom events hold any value
        rest = {name: value for name, value in event.document.items() if name not in _COLUMNS}
        kind = event.kind.encode(errors="replace").decode()
        return self.attempt, event.seq, event.t, kind, step if kept else None, json.dumps(rest)


class Series(NamedTuple):
    """The identity of one series."""

    sid: int
    placement: int
    attempt: int
    segment: int
    key: str
