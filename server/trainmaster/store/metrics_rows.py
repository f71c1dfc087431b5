"""What the metrics store takes and gives: points, series, events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from trainer_runtime.core.decoding import number
from trainer_runtime.core.protocol.event import Event
from trainmaster.store.buckets import Row

FARTHEST_X = 2**53
_PAYS_BY_COLUMN = 4  # rows
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


def points_by_key(rows: Iterable[Measured]) -> Iterator[tuple[str, Sequence[Row]]]:
    """The points of rows, some of a key at a time, each key's in order. Values that are not numbers
    are left out, and so is an x beyond `FARTHEST_X`."""
    within = [row for row in rows if -FARTHEST_X <= row[0] <= FARTHEST_X]
    for _, group in groupby(within, _keys):
        alike = list(group)
        yield from _by_column(alike) if len(alike) >= _PAYS_BY_COLUMN else _by_row(alike)


def _keys(row: Measured) -> tuple[str, ...]:
    return tuple(row[2])


def _by_row(rows: Sequence[Measured]) -> Iterator[tuple[str, Sequence[Row]]]:
    for x, t, measured in rows:
        for key, raw in measured.items():
            value = number(raw)
            if value is not None:
                yield key, ((x, t, value),)


def _by_column(rows: Sequence[Measured]) -> Iterator[tuple[str, Sequence[Row]]]:
    """Of rows with the same keys; of many in a third of the time."""
    steps, times, measured = zip(*rows, strict=True)
    columns = zip(*[values.values() for values in measured], strict=True)
    for key, column in zip(measured[0], columns, strict=True):
        numbered = zip(steps, times, map(number, column), strict=True)
        points = [(x, t, value) for x, t, value in numbered if value is not None]
        if points:
            yield key, points
