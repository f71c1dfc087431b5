"""Queries on a stored series that don't read all of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.store.buckets import Row
from trainmaster.store.metrics_rows import Series
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.packed_points import unpacked, values_of
from trainmaster.store.rollup import LEVELS, stats, tail_of

_BEFORE_ALL = -(2**62)
_QUERY = """
    SELECT run_id, {extreme}, {extreme}_x, packed, sid, placement, attempt, segment, key
    FROM series LEFT JOIN stats USING (sid) LEFT JOIN tails USING (sid)
    WHERE run_id IN (SELECT value FROM json_each(?)) AND key = ?
"""


class Best(NamedTuple):
    """The first point of a series with its least, or greatest, finite value."""

    run_id: str
    series: Series
    x: int
    value: float


def bests(
    store: MetricsStore, run_ids: Sequence[str], key: str, *, highest: bool = False
) -> Iterator[Best]:
    """The best point of each series of a key, over all its points, superseded or not."""
    query = _QUERY.format(extreme="high" if highest else "low")
    rows = store.connection.execute(query, (json.dumps(list(run_ids)), key)).fetchall()
    for run_id, value, x, tail, *series in rows:
        beyond = _best_beyond(tail, highest) if tail else None
        if beyond is not None and (value is None or _is_better(beyond, value, highest)):
            at = next(row[0] for row in unpacked(tail) if row[2] == beyond)
            yield Best(run_id, Series(*series), at, beyond)
        elif value is not None:
            yield Best(run_id, Series(*series), x, value)


def extent(store: MetricsStore, sid: int) -> tuple[int, int] | None:
    """The first and the last x of a series."""
    whole, tail = stats(store.connection, sid), tail_of(store.connection, sid)
    if whole is None:
        return (tail[0][0], tail[-1][0]) if tail else None
    return whole.first_x, tail[-1][0] if tail else whole.last_x


def point_until(store: MetricsStore, sid: int, x: int) -> Row | None:
    """The newest point at or before `x`."""
    (begin,) = store.connection.execute(
        "SELECT max(first_x) FROM blocks WHERE sid = ? AND level = ? AND first_x <= ?",
        (sid, LEVELS[0], x),
    ).fetchone()
    points = store.points(sid, x, -math.inf if begin is None else begin)
    return points[-1] if points else None


def point_from(store: MetricsStore, sid: int, x: int) -> Row | None:
    """The oldest point at or after `x`."""
    (end,) = store.connection.execute(
        "SELECT min(first_x) FROM blocks WHERE sid = ? AND level = ? AND first_x >= ?",
        (sid, LEVELS[0], x),
    ).fetchone()
    points = store.points(sid, math.inf if end is None else end, x)
    return points[0] if points else None


def first_since(store: MetricsStore, sid: int, t: float) -> int | None:
    """The first x that was measured at or after `t`, in Unix seconds.

    Reads the first block that ends at or after `t`, found from the largest ones to the finest;
    clocks that were set back are not detected.
    """
    begin, end = _BEFORE_ALL, math.inf
    for level in reversed(LEVELS):
        place = (sid, level, begin)
        row = store.connection.execute(
            "SELECT first_x, last_x FROM blocks WHERE sid = ? AND level = ? AND first_x >= ?"
            " AND last_t >= ? ORDER BY first_x LIMIT 1",
            (*place, t),
        ).fetchone()
        if row is not None:
            begin, end = row
            continue
        (newest,) = store.connection.execute(
            "SELECT max(last_x) FROM blocks WHERE sid = ? AND level = ? AND first_x >= ?", place
        ).fetchone()
        begin, end = begin if newest is None else newest + 1, math.inf
    rows = store.points(sid, end, begin)
    return next((x for x, at, _ in rows if at is not None and at >= t), None)


def _best_beyond(tail: bytes, highest: bool) -> float | None:
    """The best finite value of packed points."""
    values: Sequence[float] = values_of(tail)
    if not math.isfinite(sum(values)):
        values = [value for value in values if math.isfinite(value)]
    return (max if highest else min)(values, default=None)


def _is_better(value: float, than: float, highest: bool) -> bool:
    return value > than if highest else value < than
