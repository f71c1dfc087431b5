"""Sums over blocks of a series: a million points are summarised without reading them.

A block covers 64, 512 or 4096 neighbouring points, counted from the first of the series: in points
and not in steps, since one series has a value every step and another every thousandth. Sums are
computed from the stored points and never incremented, so a replay can't count twice. They depend on
the points alone: of n points the first n // 64 blocks are summed, and the rest is read directly.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

from trainer_runtime.core.records import dataclass
from trainmaster.store.buckets import Bucket, Row, joined, joined_in_turn, of_columns, of_rows

LEVELS = (64, 512, 4096)
_FINEST = LEVELS[0]
_PORTION = 512 * _FINEST
FINITE, NAN, INFINITY, MINUS_INFINITY = range(4)
_FLAG_VALUES = {NAN: math.nan, INFINITY: math.inf, MINUS_INFINITY: -math.inf}
_SUMS = "n, finite, first_x, last_x, last_t, last, flag, total, low, low_x, high, high_x"
# SQLite decodes the infinities; NaN stays NULL and is decoded in Python.
_DECODED = (
    f"CASE flag WHEN 0 THEN {{}} WHEN {INFINITY} THEN 9e999 WHEN {MINUS_INFINITY} THEN -9e999 END"
)
_BUCKET = _SUMS.replace("last, flag", _DECODED.format("last"))
_ROWS_BETWEEN = f"""
    SELECT x, t, {_DECODED.format("value")} FROM points
    WHERE sid = ? AND x BETWEEN ? AND ? ORDER BY x LIMIT ?
"""
_PLACEHOLDERS = ", ".join("?" * 12)
_ROW = "(?, ?, ?, ?, ?)"
_ROWS_IN_A_STATEMENT = 32  # 160 of the 999 values that every SQLite takes
SCHEMA = """
    CREATE TABLE blocks (
        sid INTEGER, level INTEGER, n INTEGER, finite INTEGER, first_x INTEGER, last_x INTEGER,
        last_t REAL, last REAL, flag INTEGER, total REAL,
        low REAL, low_x INTEGER, high REAL, high_x INTEGER,
        PRIMARY KEY (sid, level, first_x)
    ) WITHOUT ROWID;
    CREATE TABLE stats (
        sid INTEGER PRIMARY KEY, n INTEGER, finite INTEGER, first_x INTEGER, last_x INTEGER,
        last_t REAL, last REAL, flag INTEGER, total REAL,
        low REAL, low_x INTEGER, high REAL, high_x INTEGER
    )
"""


# A point as it is stored: sid, x, t, value (None where it is not finite), flag.
StoredRow = tuple[int, int, float | None, float | None, int]


@dataclass(slots=True)
class _Head:
    """How far a series is summed, and the rest: at most `beyond` points, which are `tail` where it
    is loaded."""

    whole: Bucket | None
    beyond: int
    tail: list[StoredRow] | None

    @property
    def end(self) -> float:
        if self.tail:
            return self.tail[-1][1]
        return -math.inf if self.whole is None else self.whole.last_x


class Rollup:
    """Keeps blocks and stats in step with the points. The caller holds the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._heads: dict[int, _Head] = {}

    def forget(self) -> None:
        """Drop cached state: another process may have changed the database."""
        self._heads.clear()

    def update(self, sid: int, rows: Sequence[StoredRow]) -> None:
        """Update the sums of a series after these points were inserted or replaced."""
        head = self._heads.get(sid)
        if head is None:
            head = self._heads[sid] = self._load(sid)
            if head.beyond == len(rows) and _rises_from(_end(head.whole), rows):
                head.tail = list(rows)  # all that is beyond: not read again
        else:
            head.beyond += len(rows)
            if head.tail is not None and _rises_from(head.end, rows):
                head.tail += rows
            else:
                head.tail = None
        if head.tail is None and head.whole is not None:
            lowest = min(row[1] for row in rows)
            if lowest <= head.whole.last_x:
                head.whole = self._drop_blocks(sid, lowest)
                head.beyond = _FINEST
        if head.beyond >= _FINEST:
            self._sum_up(sid, head)

    def _load(self, sid: int) -> _Head:
        whole = stats(self._connection, sid)
        beyond = self._connection.execute(
            "SELECT count(*) FROM points WHERE sid = ? AND x > ?", (sid, _end(whole))
        ).fetchone()[0]
        return _Head(whole, beyond, None)

    def _drop_blocks(self, sid: int, x: int) -> Bucket | None:
        """Drop the blocks from the one that `x` falls into; the rest, joined into one."""
        execute = self._connection.execute
        for level in LEVELS:
            execute(
                "DELETE FROM blocks WHERE sid = ? AND level = ? AND last_x >= ?", (sid, level, x)
            )
        left = list(_blocks(self._connection, sid, _FINEST))
        whole = joined_in_turn(left) if left else None
        execute("DELETE FROM stats WHERE sid = ?", (sid,))
        if whole is not None:
            self._put_stats(sid, whole)
        return whole

    def _sum_up(self, sid: int, head: _Head) -> None:
        """Write all complete blocks of the points beyond, a portion at a time."""
        while head.beyond >= _FINEST:
            rows = self._rows_beyond(sid, head) if head.tail is None else head.tail
            end = len(rows) // _FINEST * _FINEST
            if end:
                self._put_sums(sid, head, rows[:end])
            is_all = head.tail is not None or len(rows) < _PORTION
            head.tail = rows[end:] if is_all else None
            head.beyond = len(rows) - end if is_all else _FINEST

    def _put_sums(self, sid: int, head: _Head, rows: Sequence[StoredRow]) -> None:
        before = head.whole.n if head.whole else 0
        fresh = [_of_stored(rows[i : i + _FINEST]) for i in range(0, len(rows), _FINEST)]
        self._put_blocks(sid, _FINEST, fresh)
        head.whole = joined_in_turn([head.whole, *fresh] if head.whole else fresh)
        for finer, level in pairwise(LEVELS):
            if head.whole.n // level > before // level:
                self._join_blocks(sid, finer, level)
        self._put_stats(sid, head.whole)

    def _rows_beyond(self, sid: int, head: _Head) -> list[StoredRow]:
        return self._connection.execute(
            "SELECT sid, x, t, value, flag FROM points WHERE sid = ? AND x > ? ORDER BY x LIMIT ?",
            (sid, _end(head.whole), _PORTION),
        ).fetchall()

    def _join_blocks(self, sid: int, finer: int, level: int) -> None:
        """Write the blocks of `level` that are complete in those of `finer`."""
        newest = self._connection.execute(
            "SELECT max(first_x) FROM blocks WHERE sid = ? AND level = ?", (sid, level)
        ).fetchone()[0]
        after = -math.inf
        if newest is not None:
            (block,) = _blocks(self._connection, sid, level, newest)
            after = block.last_x
        parts = list(_blocks(self._connection, sid, finer, after + 1))
        size = level // finer
        whole = len(parts) // size * size
        self._put_blocks(sid, level, [joined(parts[i : i + size]) for i in range(0, whole, size)])

    def _put_blocks(self, sid: int, level: int, blocks: Sequence[Bucket]) -> None:
        self._connection.executemany(
            f"INSERT OR REPLACE INTO blocks (sid, level, {_SUMS}) VALUES (?, ?, {_PLACEHOLDERS})",
            [(sid, level, *_columns(block)) for block in blocks],
        )

    def _put_stats(self, sid: int, whole: Bucket) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO stats (sid, {_SUMS}) VALUES (?, {_PLACEHOLDERS})",
            (sid, *_columns(whole)),
        )


def stats(connection: sqlite3.Connection, sid: int) -> Bucket | None:
    """The sum over the complete blocks of a series."""
    row = connection.execute(f"SELECT {_BUCKET} FROM stats WHERE sid = ?", (sid,)).fetchone()
    return None if row is None else bucket_of(row)


def cover(
    connection: sqlite3.Connection, sid: int, first: int, last: int, coarsest: int
) -> list[Bucket]:
    """The points from `first` to `last` in buckets: blocks of `coarsest` points or the next finer
    ones where they fit, and the points themselves at the edges."""
    level = max((level for level in LEVELS if level <= coarsest), default=None)
    if level is None:
        return [of_rows((row,)) for row in rows_between(connection, sid, first, last)]
    finer = level - 1
    blocks = list(_blocks(connection, sid, level, first, last))
    if not blocks:
        return cover(connection, sid, first, last, finer)
    return [
        *cover(connection, sid, first, blocks[0].first_x - 1, finer),
        *blocks,
        *cover(connection, sid, blocks[-1].last_x + 1, last, finer),
    ]


def insert_points(connection: sqlite3.Connection, rows: Sequence[StoredRow]) -> None:
    """Insert points, many in a statement: half of what one costs is to begin and end it."""
    together = len(rows) - len(rows) % _ROWS_IN_A_STATEMENT
    connection.executemany(
        f"INSERT OR REPLACE INTO points VALUES {', '.join([_ROW] * _ROWS_IN_A_STATEMENT)}",
        (
            tuple(chain.from_iterable(rows[at : at + _ROWS_IN_A_STATEMENT]))
            for at in range(0, together, _ROWS_IN_A_STATEMENT)
        ),
    )
    connection.executemany(f"INSERT OR REPLACE INTO points VALUES {_ROW}", rows[together:])


def rows_between(
    connection: sqlite3.Connection,
    sid: int,
    first: float = -math.inf,
    last: float = math.inf,
    limit: int = -1,
) -> list[Row]:
    """The points from `first` to `last`, both included, in ascending order."""
    rows = connection.execute(
        _ROWS_BETWEEN, (sid, whole_number(first), whole_number(last), limit)
    ).fetchall()
    return [row if row[2] is not None else (row[0], row[1], math.nan) for row in rows]


def _rises_from(end: float, rows: Sequence[StoredRow]) -> bool:
    """Whether x rises from point to point, beginning after `end`."""
    for row in rows:
        if row[1] <= end:
            return False
        end = row[1]
    return True


def _of_stored(rows: Sequence[StoredRow]) -> Bucket:
    _, steps, times, stored, flags = zip(*rows, strict=True)
    if not any(flags):
        return of_columns(steps, times, stored)
    values = [
        _FLAG_VALUES[flag] if value is None else value
        for value, flag in zip(stored, flags, strict=True)
    ]
    return of_columns(steps, times, values)


def flag_of(value: float) -> int:
    if math.isfinite(value):
        return FINITE
    if math.isnan(value):
        return NAN
    return INFINITY if value > 0 else MINUS_INFINITY


def bucket_of(row: tuple[Any, ...]) -> Bucket:
    """The bucket in a row of `_BUCKET`; one answer reads thousands."""
    if row[5] is None or row[6] is None:
        last, total = (math.nan if number is None else number for number in row[5:7])
        row = (*row[:5], last, total, *row[7:])
    return Bucket._make(row)


def _columns(bucket: Bucket) -> tuple[Any, ...]:
    flag = flag_of(bucket.last)
    n, finite, first_x, last_x, last_t, last, total, low, low_x, high, high_x = bucket
    kept = None if flag else last
    return (n, finite, first_x, last_x, last_t, kept, flag, total, low, low_x, high, high_x)


def _blocks(
    connection: sqlite3.Connection,
    sid: int,
    level: int,
    first: float = -math.inf,
    last: float = math.inf,
) -> Iterator[Bucket]:
    """The blocks of a level within `first` to `last`, in ascending order."""
    cursor = connection.execute(
        f"SELECT {_BUCKET} FROM blocks WHERE sid = ? AND level = ?"
        " AND first_x BETWEEN ? AND ? AND last_x <= ? ORDER BY first_x",
        (sid, level, whole_number(first), whole_number(last), whole_number(last)),
    )
    return map(bucket_of, cursor)


def _end(whole: Bucket | None) -> int:
    return whole_number(-math.inf) if whole is None else whole.last_x


def whole_number(x: float) -> int:
    """`x` as an integer that SQLite can store."""
    return int(max(-(2**62), min(x, 2**62)))
