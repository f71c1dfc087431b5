"""`metrics.db`: what the mirror says, made queryable. Derived: thrown away and rebuilt at will.

Points stand once each under (series, x): x is the optimizer step, or milliseconds since the epoch
for telemetry. A series is one key of one segment of one attempt; attempt 0 is the placement's own
(telemetry). NaN and the infinities are kept as NULL with a flag.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainmaster.database import open_database, transaction

_MIGRATIONS = (
    """
    CREATE TABLE sources (
        run_id TEXT, placement INTEGER, name TEXT, offset INTEGER NOT NULL,
        PRIMARY KEY (run_id, placement, name)
    ) WITHOUT ROWID;
    CREATE TABLE series (
        sid INTEGER PRIMARY KEY, run_id TEXT NOT NULL, placement INTEGER NOT NULL,
        attempt INTEGER NOT NULL, segment INTEGER NOT NULL, key TEXT NOT NULL,
        UNIQUE (run_id, key, placement, attempt, segment)
    );
    CREATE TABLE points (
        sid INTEGER, x INTEGER, t REAL, value REAL, flag INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (sid, x)
    ) WITHOUT ROWID;
    CREATE TABLE folds (
        run_id TEXT, placement INTEGER, attempt INTEGER, body TEXT NOT NULL,
        PRIMARY KEY (run_id, placement, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        run_id TEXT, placement INTEGER, attempt INTEGER, seq INTEGER, t REAL NOT NULL,
        kind TEXT NOT NULL, step INTEGER, body TEXT NOT NULL,
        PRIMARY KEY (run_id, placement, attempt, seq)
    ) WITHOUT ROWID
    """,
)
_MOST_ROWS = 10_000
FINITE, NAN, INFINITY, MINUS_INFINITY = range(4)
_FLAG_VALUES = {NAN: math.nan, INFINITY: math.inf, MINUS_INFINITY: -math.inf}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one key. `t`: Unix seconds."""

    key: str
    x: int
    t: float
    value: float


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event that is no metric; `attempt` 0 is the supervisor's journal."""

    attempt: int
    seq: int
    t: float
    kind: str
    step: int | None
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Series:
    sid: int
    placement: int
    attempt: int
    segment: int
    key: str


class MetricsStore:
    """Reads are for anyone at any time; every write happens inside `writing`."""

    def __init__(self, path: Path) -> None:
        self.connection = open_database(path, _MIGRATIONS, synchronous="NORMAL")
        self._sids: dict[tuple[str, int, int, int, str], int] = {}
        self._version = -1
        # Points wait here for the others of their transaction.
        self._rows: list[tuple[int, int, float, float | None, int]] = []

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Everything that is written inside stands at once, or not at all."""
        with transaction(self.connection):
            version = self.connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:  # another process may have thrown the series away since
                self._sids.clear()
                self._version = version
            try:
                yield
                self._insert_rows()
            except BaseException:
                self._sids.clear()  # series that are taken back
                self._rows.clear()
                raise

    def clear(self, run_id: str | None = None) -> None:
        """Forget one run, or everything."""
        self._insert_rows()
        self._sids.clear()
        where, arguments = ("WHERE run_id = ?", (run_id,)) if run_id else ("", ())
        self.connection.execute(
            f"DELETE FROM points WHERE sid IN (SELECT sid FROM series {where})", arguments
        )
        for table in ("series", "sources", "folds", "events"):
            self.connection.execute(f"DELETE FROM {table} {where}", arguments)

    def offset(self, run_id: str, placement: int, name: str) -> int:
        """How many bytes of a mirrored file have been taken in."""
        row = self.connection.execute(
            "SELECT offset FROM sources WHERE run_id = ? AND placement = ? AND name = ?",
            (run_id, placement, name),
        ).fetchone()
        return int(row[0]) if row else 0

    def move_offset(self, run_id: str, placement: int, name: str, *, old: int, new: int) -> bool:
        """Note how many bytes have been taken in; False, and nothing noted, where they were not
        `old` before."""
        moved = self.connection.execute(
            "UPDATE sources SET offset = ?"
            " WHERE run_id = ? AND placement = ? AND name = ? AND offset = ?",
            (new, run_id, placement, name, old),
        )
        if moved.rowcount == 0 and old == 0:
            moved = self.connection.execute(
                "INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?)", (run_id, placement, name, new)
            )
        return moved.rowcount == 1

    def add_points(
        self, run_id: str, placement: int, attempt: int, segment: int, points: Iterable[Point]
    ) -> None:
        for point in points:
            flag = _flag(point.value)
            value = point.value if flag == FINITE else None
            sid = self._sid(run_id, placement, attempt, segment, point.key)
            self._rows.append((sid, point.x, point.t, value, flag))
        if len(self._rows) > _MOST_ROWS:
            self._insert_rows()

    def add_events(self, run_id: str, placement: int, events: Sequence[StoredEvent]) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    run_id,
                    placement,
                    event.attempt,
                    event.seq,
                    event.t,
                    event.kind,
                    event.step,
                    json.dumps(event.body),
                )
                for event in events
            ],
        )

    def fold(self, run_id: str, placement: int, attempt: int) -> dict[str, Any] | None:
        """What the events of an attempt (0: the journal) add up to, as it was put there."""
        row = self.connection.execute(
            "SELECT body FROM folds WHERE run_id = ? AND placement = ? AND attempt = ?",
            (run_id, placement, attempt),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def put_fold(self, run_id: str, placement: int, attempt: int, body: dict[str, Any]) -> None:
        self.connection.execute(
            "INSERT INTO folds VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run_id, placement, attempt) DO UPDATE SET body = excluded.body",
            (run_id, placement, attempt, json.dumps(body)),
        )

    def folds(self, run_id: str, placement: int) -> list[tuple[int, dict[str, Any]]]:
        """The folds of all attempts of a placement, the journal's (0) first."""
        rows = self.connection.execute(
            "SELECT attempt, body FROM folds WHERE run_id = ? AND placement = ? ORDER BY attempt",
            (run_id, placement),
        )
        return [(attempt, json.loads(body)) for attempt, body in rows]

    def events_after(
        self, run_id: str, placement: int, after: tuple[int, int, int]
    ) -> list[StoredEvent]:
        """Events beyond a position: (journal's seq, newest attempt, that attempt's seq)."""
        journal_seq, attempt, seq = after
        rows = self.connection.execute(
            "SELECT attempt, seq, t, kind, step, body FROM events"
            " WHERE run_id = ? AND placement = ? AND ((attempt = 0 AND seq > ?)"
            " OR attempt > ? OR (attempt = ? AND attempt > 0 AND seq > ?))"
            " ORDER BY t, attempt, seq",
            (run_id, placement, journal_seq, attempt, attempt, seq),
        )
        return [
            StoredEvent(attempt, seq, t, kind, step, json.loads(body))
            for attempt, seq, t, kind, step, body in rows
        ]

    def keys(self, run_id: str) -> list[str]:
        rows = self.connection.execute(
            "SELECT DISTINCT key FROM series WHERE run_id = ? ORDER BY key", (run_id,)
        )
        return [row[0] for row in rows]

    def series(self, run_id: str, key: str) -> list[Series]:
        """The pieces of one key of a run, oldest first."""
        rows = self.connection.execute(
            "SELECT sid, placement, attempt, segment, key FROM series"
            " WHERE run_id = ? AND key = ? ORDER BY placement, attempt, segment",
            (run_id, key),
        )
        return [Series(*row) for row in rows]

    def points(self, sid: int, until_x: float = math.inf) -> list[tuple[int, float, float]]:
        """(x, t, value) of a series up to `until_x`, rising."""
        limit = until_x if math.isfinite(until_x) else 2**62
        rows = self.connection.execute(
            "SELECT x, t, value, flag FROM points WHERE sid = ? AND x <= ? ORDER BY x", (sid, limit)
        )
        return [
            (x, t, value if flag == FINITE else _FLAG_VALUES[flag]) for x, t, value, flag in rows
        ]

    def points_after(self, sid: int, after_x: int) -> list[tuple[int, float, float]]:
        """(x, t, value) of a series beyond `after_x`, rising."""
        rows = self.connection.execute(
            "SELECT x, t, value, flag FROM points WHERE sid = ? AND x > ? ORDER BY x",
            (sid, after_x),
        )
        return [
            (x, t, value if flag == FINITE else _FLAG_VALUES[flag]) for x, t, value, flag in rows
        ]

    def count_points(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM points").fetchone()[0])

    def _insert_rows(self) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?)", self._rows
        )
        self._rows.clear()

    def _sid(self, run_id: str, placement: int, attempt: int, segment: int, key: str) -> int:
        name = (run_id, placement, attempt, segment, key)
        known = self._sids.get(name)
        if known is not None:
            return known
        wanted = (run_id, key, placement, attempt, segment)
        self.connection.execute(
            "INSERT OR IGNORE INTO series (run_id, key, placement, attempt, segment)"
            " VALUES (?, ?, ?, ?, ?)",
            wanted,
        )
        row = self.connection.execute(
            "SELECT sid FROM series WHERE run_id = ? AND key = ? AND placement = ?"
            " AND attempt = ? AND segment = ?",
            wanted,
        ).fetchone()
        self._sids[name] = int(row[0])
        return self._sids[name]


def _flag(value: float) -> int:
    if math.isfinite(value):
        return FINITE
    if math.isnan(value):
        return NAN
    return INFINITY if value > 0 else MINUS_INFINITY
