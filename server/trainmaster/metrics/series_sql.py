"""Queries on a stored series that don't read all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainmaster.store.buckets import Row
from trainmaster.store.metrics_rows import Series
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.rollup import LEVELS, stats

_BEFORE_ALL = -(2**62)
_QUERY = """
    SELECT run_id, sid, placement, attempt, segment, key, {extreme}, {extreme}_x, last_x, (
        SELECT {end}(value) FROM points WHERE points.sid = series.sid
        AND x > coalesce(stats.last_x, {before_all})
    ) FROM series LEFT JOIN stats USING (sid)
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
    extreme, end = ("high", "max") if highest else ("low", "min")
    query = _QUERY.format(extreme=extreme, end=end, before_all=_BEFORE_ALL)
    rows = store.connection.execute(query, (json.dumps(list(run_ids)), key)).fetchall()
    for run_id, *found, value, x, last_x, beyond in rows:
        series = Series(*found)
        if beyond is not None and (value is None or _is_better(beyond, value, highest)):
            yield Best(run_id, series, _first_x(store, series.sid, last_x, beyond), beyond)
        elif value is not None:
            yield Best(run_id, series, x, value)


def extent(store: MetricsStore, sid: int) -> tuple[int, int] | None:
    """The first and the last x of a series."""
    first, last = store.connection.execute(
        "SELECT (SELECT min(x) FROM points WHERE sid = :sid),"
        " (SELECT max(x) FROM points WHERE sid = :sid)",
        {"sid": sid},
    ).fetchone()
    return None if first is None else (first, last)


def point_until(store: MetricsStore, sid: int, x: int) -> Row | None:
    """The newest point at or before `x`."""
    return _point_at(store, sid, "SELECT max(x) FROM points WHERE sid = ? AND x <= ?", x)


def point_from(store: MetricsStore, sid: int, x: int) -> Row | None:
    """The oldest point at or after `x`."""
    return _point_at(store, sid, "SELECT min(x) FROM points WHERE sid = ? AND x >= ?", x)


def first_since(store: MetricsStore, sid: int, t: float) -> int | None:
    """The first x that was measured at or after `t`, in Unix seconds.

    Reads the first block that ends at or after `t`; clocks that were set back are not detected.
    """
    (begin,) = store.connection.execute(
        "SELECT min(first_x) FROM blocks WHERE sid = ? AND level = ? AND last_t >= ?",
        (sid, LEVELS[0], t),
    ).fetchone()
    whole = stats(store.connection, sid)
    if begin is None:
        begin = whole.last_x + 1 if whole else _BEFORE_ALL
    (found,) = store.connection.execute(
        "SELECT min(x) FROM points WHERE sid = ? AND x >= ? AND t >= ?", (sid, begin, t)
    ).fetchone()
    return None if found is None else int(found)


def _point_at(store: MetricsStore, sid: int, query: str, x: int) -> Row | None:
    (found,) = store.connection.execute(query, (sid, x)).fetchone()
    return None if found is None else store.points(sid, found, found)[0]


def _is_better(value: float, than: float, highest: bool) -> bool:
    return value > than if highest else value < than


def _first_x(store: MetricsStore, sid: int, after: int | None, value: float) -> int:
    row = store.connection.execute(
        "SELECT min(x) FROM points WHERE sid = ? AND x > ? AND value = ?",
        (sid, _BEFORE_ALL if after is None else after, value),
    ).fetchone()
    return int(row[0])
