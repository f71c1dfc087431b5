"""What the metrics store takes and gives: points, series, events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainer_runtime.core.protocol.event import Event

# The fields of a Point: a plain tuple is created in a fifth of the time, for every number that a
# run reports.
PointFields = tuple[str, int, float | None, float]


class Point(NamedTuple):
    """One value of one key. `t`: Unix seconds, None if unknown."""

    key: str
    x: int
    t: float | None
    value: float


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event other than a metric; `attempt` 0 is the supervisor's journal."""

    attempt: int
    event: Event


class Series(NamedTuple):
    """The identity of one series."""

    sid: int
    placement: int
    attempt: int
    segment: int
    key: str
