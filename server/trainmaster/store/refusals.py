"""What was refused of the data of hosts, by run.

In `metrics.db`: a replay clears it and judges the same bytes again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

SCHEMA = """
    CREATE TABLE refusals (
        run_id TEXT, placement INTEGER, name TEXT, reason TEXT NOT NULL, lines INTEGER NOT NULL,
        PRIMARY KEY (run_id, placement, name)
    ) WITHOUT ROWID;
    CREATE TABLE quarantines (
        run_id TEXT, placement INTEGER, code TEXT NOT NULL, reason TEXT NOT NULL, t REAL NOT NULL,
        PRIMARY KEY (run_id, placement)
    ) WITHOUT ROWID;
"""
HOST_DATA_REFUSED, MIRROR_QUOTA = "host_data_refused", "mirror_quota"  # codes of findings
TABLES = ("refusals", "quarantines")


class UnusableDataError(Exception):
    """Data of a host that can't be taken in.

    `reason` is in our own words, never the host's; `code` is that of the finding.
    """

    def __init__(self, reason: str, code: str = HOST_DATA_REFUSED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


@dataclass(frozen=True, slots=True)
class RefusedLines:
    """The lines of one file that were left out; `reason` is that of the first."""

    name: str
    reason: str
    lines: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why nothing of a placement is read any more, as a finding's code and a reason; `t`: since
    when, in Unix seconds."""

    code: str
    reason: str
    t: float


@dataclass(frozen=True, slots=True)
class Refused:
    """What was refused of a placement."""

    lines: tuple[RefusedLines, ...] = ()
    quarantine: Quarantine | None = None


NOTHING_REFUSED = Refused()


class Refusals:
    """Writes belong inside the store's `writing`; reasons are our own words, never a host's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, run_id: str, placement: int, name: str, reason: str, lines: int) -> int:
        """Count refused lines of a file; how many they are by now."""
        [(total,)] = self._connection.execute(
            "INSERT INTO refusals VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id, placement, name)"
            " DO UPDATE SET lines = lines + excluded.lines RETURNING lines",
            (run_id, placement, name, reason, lines),
        ).fetchall()
        return int(total)

    def quarantine(self, run_id: str, placement: int, quarantine: Quarantine) -> None:
        """Stop reading a placement; the first reason stays."""
        self._connection.execute(
            "INSERT OR IGNORE INTO quarantines VALUES (?, ?, ?, ?, ?)",
            (run_id, placement, quarantine.code, quarantine.reason, quarantine.t),
        )

    def quarantined(self) -> set[tuple[str, int]]:
        """The placements (run, number) that are not read."""
        rows = self._connection.execute("SELECT run_id, placement FROM quarantines")
        return set(rows.fetchall())

    def of(self, run_id: str, placement: int) -> Refused:
        lines = self._connection.execute(
            "SELECT name, reason, lines FROM refusals WHERE run_id = ? AND placement = ?",
            (run_id, placement),
        )
        quarantine = self._connection.execute(
            "SELECT code, reason, t FROM quarantines WHERE run_id = ? AND placement = ?",
            (run_id, placement),
        ).fetchone()
        return Refused(
            tuple(RefusedLines(*row) for row in lines),
            Quarantine(*quarantine) if quarantine else None,
        )
