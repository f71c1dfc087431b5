"""`metrics.db`: the contents of the mirror, made queryable. Derived: it can be rebuilt at any time.

Each point is stored once under (series, x): x is the optimizer step, or milliseconds since the
epoch for telemetry. A series is one key of one segment of one attempt; attempt 0 is the placement
itself (telemetry). `rollup` says how its points lie there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.event import Event
from trainmaster.errors.errors import StorageError
from trainmaster.store.buckets import Row
from trainmaster.store.database import open_derived_database, transaction
from trainmaster.store.metrics_rows import Measured, Series, StoredEvent, points_by_key
from trainmaster.store.migration import version_of
from trainmaster.store.read_only import derived_read_only
from trainmaster.store.refusals import SCHEMA as REFUSALS_SCHEMA
from trainmaster.store.refusals import TABLES as REFUSALS_TABLES
from trainmaster.store.refusals import Refusals, UnusableDataError
from trainmaster.store.rollup import SCHEMA, Rollup, rows_between

# A newer version drops the contents of an older one and rebuilds them from the mirror.
_VERSION = 4
_SCHEMA = f"""
    CREATE TABLE replays (due INTEGER PRIMARY KEY);
    INSERT INTO replays VALUES (1);
    CREATE TABLE left_out (run_id TEXT PRIMARY KEY);
    CREATE TABLE offsets (
        run_id TEXT, placement INTEGER, name TEXT, offset INTEGER NOT NULL,
        PRIMARY KEY (run_id, placement, name)
    ) WITHOUT ROWID;
    CREATE TABLE series (
        sid INTEGER PRIMARY KEY, run_id TEXT NOT NULL, placement INTEGER NOT NULL,
        attempt INTEGER NOT NULL, segment INTEGER NOT NULL, key TEXT NOT NULL,
        UNIQUE (run_id, key, placement, attempt, segment)
    );
    CREATE TABLE folds (
        run_id TEXT, placement INTEGER, attempt INTEGER, body TEXT NOT NULL,
        PRIMARY KEY (run_id, placement, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE events (
        run_id TEXT, placement INTEGER, attempt INTEGER, seq INTEGER, t REAL NOT NULL,
        kind TEXT NOT NULL, step INTEGER, body TEXT NOT NULL,
        PRIMARY KEY (run_id, placement, attempt, seq)
    ) WITHOUT ROWID;
    {REFUSALS_SCHEMA}
    {SCHEMA}
"""
MOST_KEYS = 2000
# Thousands of attempts or checkpoints; it is written several times a second.
MAX_FOLD_CHARACTERS = 8 << 20
# 16 MiB: a page that many small transactions change is written to the database once.
_WAL_PAGES = 4096
# What a transaction changes in some thousand series; else it is written and read again meanwhile.
_CACHE_KIB = 16 << 10
_LONGEST_KEY = 200
_Place = tuple[str, int, int, int]  # run, placement, attempt, segment
_Rows = list[Row]
_MOST_ROWS = 10_000
# Of a transaction that clears.
_CLEARED_SERIES, _CLEARED_POINTS = 1000, 2_000_000


class MetricsStore:
    """Any process may read at any time; every write happens inside `writing`."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """`writable`: False in a home that can only be read; what is stored there is answered."""
        self.connection = (
            open_derived_database(path, _SCHEMA, _VERSION, synchronous="NORMAL")
            if writable
            else derived_read_only(path, _SCHEMA, _VERSION)
        )
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self.refusals = Refusals(self.connection)
        self._rollup = Rollup(self.connection)
        # For each (run, placement, attempt, segment), by key: the series' number, and its points
        # that are still to be inserted in this transaction.
        self._known: dict[_Place, dict[str, tuple[int, _Rows] | None]] = {}
        self._keys: dict[str, set[str]] = {}
        self._version = -1
        self._touched: dict[_Place, dict[str, tuple[int, _Rows] | None]] = {}
        self._waiting = 0

    def close(self) -> None:
        self.connection.close()

    def version(self) -> tuple[int, int]:
        """Two numbers, one of which changes whenever this or another process has written."""
        others = self.connection.execute("PRAGMA data_version").fetchone()[0]
        return int(others), self.connection.total_changes

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction: everything written inside is stored, or nothing."""
        try:
            with transaction(self.connection):
                self._detect_other_writers()
                yield
                self._insert_rows()
        except BaseException:  # the commit's, too
            self._forget()  # series and sums that were rolled back
            raise

    def forget(self, run_id: str, placement: int) -> None:
        """Drop what is cached of a placement."""
        for place in [place for place in self._known if place[:2] == (run_id, placement)]:
            del self._known[place]
        self._keys.pop(run_id, None)

    def clear(self, run_id: str | None = None) -> None:
        """Remove one run, or everything."""
        self.clear_records(run_id)
        while self.clear_series(run_id):
            pass

    def clear_records(self, run_id: str | None = None) -> None:
        """Forget all but the points: how far files are ingested, folds, events, refusals."""
        where, arguments = ("WHERE run_id = ?", (run_id,)) if run_id else ("", ())
        for table in ("offsets", "folds", "events", "left_out", *REFUSALS_TABLES):
            self.connection.execute(f"DELETE FROM {table} {where}", arguments)

    def clear_series(self, run_id: str | None = None) -> bool:
        """Forget some series of one run, or of any; True where there were some. Their points are as
        many as can be removed in a second or two, or those of one series."""
        self._insert_rows()
        self._forget()
        where, arguments = ("WHERE run_id = ?", (run_id,)) if run_id else ("", ())
        rows = self.connection.execute(
            f"SELECT sid, coalesce(n, 0) FROM series LEFT JOIN stats USING (sid) {where} LIMIT ?",
            (*arguments, _CLEARED_SERIES),
        ).fetchall()
        points = 0
        chosen: list[tuple[int]] = []
        for sid, n in rows:
            points += n
            if chosen and points > _CLEARED_POINTS:
                break
            chosen.append((sid,))
        for table in ("blocks", "tails", "stats", "series"):
            self.connection.executemany(f"DELETE FROM {table} WHERE sid = ?", chosen)
        return bool(chosen)

    def offset(self, run_id: str, placement: int, name: str) -> int:
        """How many bytes of a mirrored file have been ingested."""
        row = self.connection.execute(
            "SELECT offset FROM offsets WHERE run_id = ? AND placement = ? AND name = ?",
            (run_id, placement, name),
        ).fetchone()
        return int(row[0]) if row else 0

    def ingested_bytes(self) -> int:
        """Of all mirrored files."""
        row = self.connection.execute("SELECT coalesce(sum(offset), 0) FROM offsets").fetchone()
        return int(row[0])

    def move_offset(self, run_id: str, placement: int, name: str, *, old: int, new: int) -> bool:
        """Record how many bytes have been ingested; False, and nothing recorded, where another
        number than `old` was recorded before."""
        moved = self.connection.execute(
            "UPDATE offsets SET offset = ?"
            " WHERE run_id = ? AND placement = ? AND name = ? AND offset = ?",
            (new, run_id, placement, name, old),
        )
        if moved.rowcount == 0 and old == 0:
            moved = self.connection.execute(
                "INSERT OR IGNORE INTO offsets VALUES (?, ?, ?, ?)", (run_id, placement, name, new)
            )
        return moved.rowcount == 1

    def add_measured(
        self,
        run_id: str,
        placement: int,
        attempt: int,
        segment: int,
        rows: Iterable[Measured],
    ) -> None:
        """Add what was measured, in any order; a point replaces an earlier one at the same `x`.
        Values that are not numbers are left out.

        A run's first 2000 keys of at most 200 characters are stored; see `leaves_out`.
        """
        place = (run_id, placement, attempt, segment)
        series_by_key = self._touched[place] = self._known.setdefault(place, {})
        for key, points in points_by_key(rows):
            series = series_by_key[key] if key in series_by_key else self._register(place, key)
            if series is not None:
                series[1].extend(points)
                self._waiting += len(points)
        if self._waiting > _MOST_ROWS:
            self._insert_rows()

    def add_events(self, run_id: str, placement: int, events: Sequence[StoredEvent]) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(run_id, placement, *stored.columns()) for stored in events],
        )

    def fold(self, run_id: str, placement: int, attempt: int) -> dict[str, Any] | None:
        """The folded events of an attempt (0: the journal), as `put_fold` stored them."""
        row = self.connection.execute(
            "SELECT body FROM folds WHERE run_id = ? AND placement = ? AND attempt = ?",
            (run_id, placement, attempt),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def put_fold(self, run_id: str, placement: int, attempt: int, body: dict[str, Any]) -> None:
        """Raises:
        UnusableDataError: the fold is larger than any real run's.
        """
        text = json.dumps(body)
        if len(text) > MAX_FOLD_CHARACTERS:
            raise UnusableDataError(f"its state is larger than {MAX_FOLD_CHARACTERS} characters")
        self.connection.execute(
            "INSERT INTO folds VALUES (?, ?, ?, ?)"
            " ON CONFLICT (run_id, placement, attempt) DO UPDATE SET body = excluded.body",
            (run_id, placement, attempt, text),
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
            "SELECT attempt, seq, t, kind, body FROM events"
            " WHERE run_id = ? AND placement = ? AND ((attempt = 0 AND seq > ?)"
            " OR attempt > ? OR (attempt = ? AND attempt > 0 AND seq > ?))"
            " ORDER BY t, attempt, seq",
            (run_id, placement, journal_seq, attempt, attempt, seq),
        )
        return [
            StoredEvent(attempt, Event(seq, t, kind, json.loads(body)))
            for attempt, seq, t, kind, body in rows
        ]

    def events_of(self, run_id: str, placement: int, kind: str) -> list[StoredEvent]:
        """The events of one kind, in order."""
        rows = self.connection.execute(
            "SELECT attempt, seq, t, kind, body FROM events"
            " WHERE run_id = ? AND placement = ? AND kind = ? ORDER BY attempt, seq",
            (run_id, placement, kind),
        )
        return [
            StoredEvent(attempt, Event(seq, t, kind, json.loads(body)))
            for attempt, seq, t, kind, body in rows
        ]

    def seen_by(self, run_id: str, placement: int, t: float) -> tuple[int, int, int]:
        """The position of the newest events until `t`, as `events_after` takes it."""
        rows = self.connection.execute(
            "SELECT attempt, max(seq) FROM events WHERE run_id = ? AND placement = ? AND t <= ?"
            " GROUP BY attempt ORDER BY attempt",
            (run_id, placement, t),
        ).fetchall()
        newest = rows[-1] if rows and rows[-1][0] else (0, -1)
        return dict(rows).get(0, -1), *newest

    def keys(self, run_id: str) -> list[str]:
        rows = self.connection.execute(
            "SELECT DISTINCT key FROM series WHERE run_id = ? ORDER BY key", (run_id,)
        )
        return [row[0] for row in rows]

    def series(self, run_id: str, key: str) -> list[Series]:
        """All series of one key of a run, oldest first."""
        rows = self.connection.execute(
            "SELECT sid, placement, attempt, segment, key FROM series"
            " WHERE run_id = ? AND key = ? ORDER BY placement, attempt, segment",
            (run_id, key),
        )
        return [Series(*row) for row in rows]

    def leaves_out(self, run_id: str) -> bool:
        """Whether the run has more keys, or longer ones, than are stored."""
        rows = self.connection.execute("SELECT 1 FROM left_out WHERE run_id = ?", (run_id,))
        return rows.fetchone() is not None

    def points(self, sid: int, until_x: float = math.inf, from_x: float = -math.inf) -> list[Row]:
        """The points of a series from `from_x` up to `until_x`, in ascending order."""
        return rows_between(self.connection, sid, from_x, until_x)

    def count_points(self, run_id: str | None = None) -> int:
        """Of one run, or of all."""
        where = "WHERE sid IN (SELECT sid FROM series WHERE run_id = :run)" if run_id else ""
        row = self.connection.execute(
            f"SELECT (SELECT coalesce(sum(n), 0) FROM stats {where})"
            f" + (SELECT coalesce(sum(n), 0) FROM tails {where})",
            {"run": run_id},
        ).fetchone()
        return int(row[0])

    @property
    def replay_due(self) -> bool:
        """Whether the database is new, and the mirrors have not been ingested yet."""
        return self.connection.execute("SELECT 1 FROM replays").fetchone() is not None

    def expect_replay(self) -> None:
        """Have the mirrors ingested as into a new database; what is ingested stays."""
        self.connection.execute("INSERT OR IGNORE INTO replays VALUES (1)")

    def replayed(self) -> None:
        self.connection.execute("DELETE FROM replays")

    def _insert_rows(self) -> None:
        waiting = [
            series
            for series_by_key in self._touched.values()
            for series in series_by_key.values()
            if series is not None and series[1]
        ]
        for sid, rows in waiting:
            self._rollup.add(sid, rows)
            rows.clear()
        self._touched.clear()
        self._waiting = 0

    def _detect_other_writers(self) -> None:
        """Drop caches where another process wrote since; refuse a database of another version."""
        version = self.connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        if version_of(self.connection) != _VERSION:
            raise StorageError(
                "HOME_IS_NEWER",
                "Another version of Trainmaster has rebuilt the metrics database meanwhile.",
                "Start this program again with the newer version.",
            )
        self._forget()
        self._version = version

    def _forget(self) -> None:
        self._known.clear()
        self._touched.clear()
        self._waiting = 0
        self._keys.clear()
        self._rollup.forget()

    def _register(self, place: _Place, key: str) -> tuple[int, _Rows] | None:
        """The series of a key, created where it is missing; None where the key is not stored."""
        run_id, placement, attempt, segment = place
        if not self._keeps(run_id, key):
            self.connection.execute("INSERT OR IGNORE INTO left_out VALUES (?)", (run_id,))
            return None
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
        series: tuple[int, _Rows] = (int(row[0]), [])
        self._known[place][key] = series
        return series

    def _keeps(self, run_id: str, key: str) -> bool:
        if run_id not in self._keys:
            self._keys[run_id] = set(self.keys(run_id))
        keys = self._keys[run_id]
        if key in keys:
            return True
        if len(keys) >= MOST_KEYS or len(key) > _LONGEST_KEY or not _is_text(key):
            return False
        keys.add(key)
        return True


def _is_text(key: str) -> bool:
    """Whether UTF-8 can encode the key; JSON escapes can hold lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
