"""The points of a series in blocks, each with its sums: a million are summarised without reading
them.

A block covers 64, 512 or 4096 neighbouring points, counted from the first of the series: in points
and not in steps, since one series has a value every step and another every thousandth. Blocks of 64
hold the points themselves; those beyond the last complete one are the series' tail. Sums are
computed from the stored points and never incremented, so a replay can't count twice. They depend on
the points alone: of n points the first n // 64 blocks are summed, and the rest is read directly.

Rows lie in the order of their arrival and are found by an index: in the order of series, each
portion of many series would change most pages of the table.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from trainer_runtime.core.records import dataclass
from trainmaster.store.buckets import Bucket, Row, joined, joined_in_turn, of_columns, of_rows
from trainmaster.store.packed_points import packed, unpacked

LEVELS = (64, 512, 4096)
_FINEST = LEVELS[0]
_PORTION = 512
# 80 MiB of tails; those beyond are read again.
_MOST_HEADS = 10_000
_FINITE, _NAN, _INFINITY, _MINUS_INFINITY = range(4)
_SUMS = "n, finite, first_x, last_x, last_t, last, flag, total, low, low_x, high, high_x"
# SQLite decodes the infinities; NaN stays NULL and is decoded in Python.
_BUCKET = _SUMS.replace(
    "last, flag",
    f"CASE flag WHEN {_FINITE} THEN last WHEN {_INFINITY} THEN 9e999"
    f" WHEN {_MINUS_INFINITY} THEN -9e999 END",
)
# The finest blocks from the last that begins at or before a value of x to one beyond another.
_PACKED_BETWEEN = """
    SELECT packed FROM blocks WHERE sid = ?1 AND level = ?2 AND first_x BETWEEN coalesce(
        (SELECT max(first_x) FROM blocks WHERE sid = ?1 AND level = ?2 AND first_x <= ?3), ?3
    ) AND ?4 ORDER BY first_x
"""
_PLACEHOLDERS = ", ".join("?" * 12)
# `packed`: the points, of the finest blocks alone.
SCHEMA = """
    CREATE TABLE blocks (
        sid INTEGER, level INTEGER, n INTEGER, finite INTEGER, first_x INTEGER, last_x INTEGER,
        last_t REAL, last REAL, flag INTEGER, total REAL,
        low REAL, low_x INTEGER, high REAL, high_x INTEGER, packed BLOB,
        PRIMARY KEY (sid, level, first_x)
    );
    CREATE TABLE tails (sid INTEGER PRIMARY KEY, n INTEGER NOT NULL, packed BLOB NOT NULL);
    CREATE TABLE stats (
        sid INTEGER PRIMARY KEY, n INTEGER, finite INTEGER, first_x INTEGER, last_x INTEGER,
        last_t REAL, last REAL, flag INTEGER, total REAL,
        low REAL, low_x INTEGER, high REAL, high_x INTEGER
    )
"""


@dataclass(slots=True)
class _Head:
    """The end of a series: the sum of its blocks, and its points beyond."""

    whole: Bucket | None
    tail: list[Row]

    @property
    def end(self) -> float:
        if self.tail:
            return self.tail[-1][0]
        return -math.inf if self.whole is None else self.whole.last_x


class Rollup:
    """Writes the points of series, and their sums in step. The caller holds the transaction. The
    ends of `most_heads` series are remembered."""

    def __init__(self, connection: sqlite3.Connection, *, most_heads: int = _MOST_HEADS) -> None:
        self._connection, self._most_heads = connection, most_heads
        self._heads: dict[int, _Head] = {}

    def forget(self) -> None:
        """Drop cached state: another process may have changed the database."""
        self._heads.clear()

    def add(self, sid: int, rows: Sequence[Row]) -> None:
        """Add one or more points in any order; each replaces an earlier one at the same x."""
        head = self._heads.get(sid)
        if head is None:
            if len(self._heads) >= self._most_heads:
                self._heads.clear()
            head = _Head(stats(self._connection, sid), tail_of(self._connection, sid))
            self._heads[sid] = head
        if _rises_from(head.end, rows):
            head.tail += rows
        else:
            self._merge(sid, head, rows)
        self._complete_blocks(sid, head)
        self._put_tail(sid, head.tail)

    def _merge(self, sid: int, head: _Head, rows: Sequence[Row]) -> None:
        """Put points among those that are there. Blocks from the first that changes are taken back
        a portion at a time, since those behind it move, too."""
        fresh = _merged((), rows)
        lowest = fresh[0][0]
        if head.whole is not None and lowest <= head.whole.last_x:
            beyond, head.tail = head.tail, []
            head.whole = self._drop_sums(sid, lowest)
            taken = _end(head.whole)
            while older := self._take_back(sid, taken):
                taken = older[-1][0]
                count = bisect_right(fresh, taken, key=_x)
                head.tail += _merged(older, fresh[:count])
                fresh = fresh[count:]
                self._complete_blocks(sid, head)
            head.tail += beyond
        head.tail = _merged(head.tail, fresh)

    def _drop_sums(self, sid: int, x: int) -> Bucket | None:
        """Drop the sums of larger blocks from the one that `x` falls into, and that of all; the sum
        of the finest ones before it."""
        execute = self._connection.execute
        for level in LEVELS[1:]:
            execute(
                "DELETE FROM blocks WHERE sid = ? AND level = ? AND last_x >= ?", (sid, level, x)
            )
        execute("DELETE FROM stats WHERE sid = ?", (sid,))
        left = [block for block in _blocks(self._connection, sid, _FINEST) if block.last_x < x]
        return joined_in_turn(left) if left else None

    def _take_back(self, sid: int, after: int) -> list[Row]:
        """Remove the first of the finest blocks that begin after `after`; their points."""
        blocks = self._connection.execute(
            "SELECT rowid, packed FROM blocks WHERE sid = ? AND level = ? AND first_x > ?"
            " ORDER BY first_x LIMIT ?",
            (sid, _FINEST, after, _PORTION),
        ).fetchall()
        self._connection.executemany(
            "DELETE FROM blocks WHERE rowid = ?", [(row_id,) for row_id, _ in blocks]
        )
        return [row for _, data in blocks for row in unpacked(data)]

    def _complete_blocks(self, sid: int, head: _Head) -> None:
        """Write all complete blocks of the points beyond."""
        end = len(head.tail) // _FINEST * _FINEST
        if not end:
            return
        before = head.whole.n if head.whole else 0
        fresh = [_block_of(head.tail[i : i + _FINEST]) for i in range(0, end, _FINEST)]
        head.tail = head.tail[end:]
        self._put_blocks(sid, _FINEST, fresh)
        sums = [block for block, _ in fresh]
        head.whole = joined_in_turn([head.whole, *sums] if head.whole else sums)
        for finer, level in pairwise(LEVELS):
            if head.whole.n // level > before // level:
                self._join_blocks(sid, finer, level)
        self._connection.execute(
            f"INSERT OR REPLACE INTO stats (sid, {_SUMS}) VALUES (?, {_PLACEHOLDERS})",
            (sid, *_columns(head.whole)),
        )

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
        made = [joined(parts[i : i + size]) for i in range(0, whole, size)]
        self._put_blocks(sid, level, [(block, None) for block in made])

    def _put_blocks(
        self, sid: int, level: int, blocks: Sequence[tuple[Bucket, bytes | None]]
    ) -> None:
        self._connection.executemany(
            f"INSERT INTO blocks (sid, level, {_SUMS}, packed) VALUES (?, ?, {_PLACEHOLDERS}, ?)",
            [(sid, level, *_columns(block), data) for block, data in blocks],
        )

    def _put_tail(self, sid: int, tail: Sequence[Row]) -> None:
        if not tail:
            self._connection.execute("DELETE FROM tails WHERE sid = ?", (sid,))
            return
        steps, times, values = zip(*tail, strict=True)
        self._connection.execute(
            "INSERT OR REPLACE INTO tails VALUES (?, ?, ?)",
            (sid, len(tail), packed(steps, times, values)),
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


def rows_between(
    connection: sqlite3.Connection, sid: int, first: float = -math.inf, last: float = math.inf
) -> list[Row]:
    """The points from `first` to `last`, both included, in ascending order."""
    begin, end = whole_number(first), whole_number(last)
    rows = [
        row
        for (data,) in connection.execute(_PACKED_BETWEEN, (sid, _FINEST, begin, end))
        for row in unpacked(data)
    ]
    rows += tail_of(connection, sid)
    return rows[bisect_left(rows, begin, key=_x) : bisect_right(rows, end, key=_x)]


def tail_of(connection: sqlite3.Connection, sid: int) -> list[Row]:
    """The points of a series beyond its last complete block."""
    row = connection.execute("SELECT packed FROM tails WHERE sid = ?", (sid,)).fetchone()
    return [] if row is None else unpacked(row[0])


def _rises_from(end: float, rows: Sequence[Row]) -> bool:
    """Whether x rises from point to point, beginning after `end`."""
    for row in rows:
        if row[0] <= end:
            return False
        end = row[0]
    return True


def _merged(older: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """In order of x; of several at the same x, the last."""
    return sorted({row[0]: row for row in (*older, *newer)}.values(), key=_x)


def _x(row: Row) -> int:
    return row[0]


def _block_of(rows: Sequence[Row]) -> tuple[Bucket, bytes]:
    steps, times, values = zip(*rows, strict=True)
    return of_columns(steps, times, values), packed(steps, times, values)


def _flag_of(value: float) -> int:
    if math.isfinite(value):
        return _FINITE
    if math.isnan(value):
        return _NAN
    return _INFINITY if value > 0 else _MINUS_INFINITY


def bucket_of(row: tuple[Any, ...]) -> Bucket:
    """The bucket in a row of `_BUCKET`; one answer reads thousands."""
    if row[5] is None or row[6] is None:
        last, total = (math.nan if number is None else number for number in row[5:7])
        row = (*row[:5], last, total, *row[7:])
    return tuple.__new__(Bucket, row)  # as `_make` does, without counting


def _columns(bucket: Bucket) -> tuple[Any, ...]:
    flag = _flag_of(bucket.last)
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
