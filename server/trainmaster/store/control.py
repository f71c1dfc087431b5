"""`control.db`: what was asked for. Runs, placements, requests, idempotency keys.

Written through to the disk (synchronous FULL): everything that the tool has promised stands here
before it is done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.desired import Desired
from trainmaster.store.control_alerts import MIGRATION as ALERTS
from trainmaster.store.control_alerts import AlertRecords
from trainmaster.store.control_approvals import ApprovalRecords
from trainmaster.store.control_instances import MIGRATION as BOXES
from trainmaster.store.control_instances import BoxRecords
from trainmaster.store.control_kaggle import KernelRecords
from trainmaster.store.database import open_database, transaction
from trainmaster.store.host_record import HostRecord
from trainmaster.store.run import Run
from trainmaster.words.errors import HostError, StateError, UsageError

_MIGRATIONS = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_t REAL NOT NULL,
        host TEXT NOT NULL, placement INTEGER NOT NULL DEFAULT 1,
        spec TEXT NOT NULL, config TEXT NOT NULL, plan TEXT NOT NULL, labels TEXT NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0, cleaned INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE placements (
        run_id TEXT NOT NULL REFERENCES runs, number INTEGER NOT NULL, host TEXT NOT NULL,
        launcher TEXT NOT NULL, folder TEXT NOT NULL, created_t REAL NOT NULL, placed_t REAL,
        PRIMARY KEY (run_id, number)
    );
    CREATE TABLE requests (
        run_id TEXT NOT NULL REFERENCES runs, generation INTEGER NOT NULL, t REAL NOT NULL,
        desired TEXT NOT NULL, delivered_t REAL,
        PRIMARY KEY (run_id, generation)
    );
    CREATE TABLE idempotency (
        key TEXT PRIMARY KEY, action TEXT NOT NULL, asked TEXT NOT NULL, run_id TEXT NOT NULL,
        t REAL NOT NULL
    )
    """,
    """
    CREATE TABLE hosts (name TEXT PRIMARY KEY, body TEXT NOT NULL, created_t REAL NOT NULL);
    CREATE INDEX open_runs ON runs (host, run_id, placement) WHERE closed = 0
    """,
    ALERTS,
    BOXES,
)
# The launcher of what goes on in sessions.
IN_SESSIONS = "kernel"
_LEFT_BEHIND = "left_behind "
_RUN_COLUMNS = (
    "run_id, name, created_t, host, placement, spec, config, plan, labels, closed, cleaned"
)


class Control:
    """The operator's record. Each method is one transaction."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _MIGRATIONS, synchronous="FULL")
        self.alerts = AlertRecords(self._connection)
        self.boxes = BoxRecords(self._connection)
        self.approvals = ApprovalRecords(self._connection)
        self.kernels = KernelRecords(self._connection)

    def close(self) -> None:
        self._connection.close()

    def add_run(
        self, run: Run, desired: Desired, launcher: str, folder: str, key: tuple[str, str] | None
    ) -> Literal["added", "name taken", "key taken"]:
        """Record a run, its first placement and its first request, or nothing of it.

        `key`: the idempotency key and what was asked under it. Name and key may be taken by another
        process at the last moment.
        """
        described = (
            json.dumps(run.document),
            json.dumps(run.plan),
            json.dumps(run.labels),
        )
        with transaction(self._connection) as connection:
            if self._exists("runs", "name", run.name):
                return "name taken"
            if key is not None and self._exists("idempotency", "key", key[0]):
                return "key taken"
            connection.execute(
                f"INSERT INTO runs ({_RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
                (run.run_id, run.name, run.created_t, run.host, 1, run.spec, *described),
            )
            connection.execute(
                "INSERT INTO placements VALUES (?, 1, ?, ?, ?, ?, NULL)",
                (run.run_id, run.host, launcher, folder, run.created_t),
            )
            self._insert_request(run.run_id, desired, run.created_t)
            if key is not None:
                action = "attach" if run.is_attached else "launch"
                self._insert_key(key, action, run.run_id, run.created_t)
        return "added"

    def forget_unplaced(self, run_id: str) -> bool:
        """Take back a run of which nothing reached its host; False, and it stays, where it did.

        What goes on in sessions reaches its host by the first of them.
        """
        with transaction(self._connection) as connection:
            reached = connection.execute(
                "SELECT 1 FROM placements WHERE run_id = ?1 AND placed_t IS NOT NULL"
                " AND (launcher != ?2 OR EXISTS"
                " (SELECT 1 FROM kernel_sessions WHERE kernel_sessions.run_id = ?1))",
                (run_id, IN_SESSIONS),
            )
            if reached.fetchone() is not None:
                return False
            for table in ("requests", "placements", "idempotency", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        return True

    def free_name(self, wanted: str) -> str:
        """`wanted`, or with the first number behind it that makes it new."""
        taken = {row[0] for row in self._connection.execute("SELECT name FROM runs")}
        number, name = 2, wanted
        while name in taken:
            name, number = f"{wanted}-{number}", number + 1
        return name

    def run(self, run: str) -> Run:
        """The run of this id or name.

        Raises:
            StateError: `RUN_NOT_FOUND`.
        """
        row = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs WHERE run_id = ? OR name = ?", (run, run)
        ).fetchone()
        if row is None:
            raise StateError(
                "RUN_NOT_FOUND", f"No run is called {run!r}.", "`trainmaster runs` lists them."
            )
        return _run(row)

    def runs(self, *, only_open: bool = False) -> list[Run]:
        """All runs, newest first."""
        where = "WHERE closed = 0" if only_open else ""
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs {where} ORDER BY created_t DESC, run_id"
        )
        return [_run(row) for row in rows]

    def open_runs(self, host: str) -> list[tuple[str, int, int]]:
        """(run, placement, generation of the newest request) of a host's open runs that are placed.

        Asked for several times a second: reads nothing of what was planned for them.
        """
        return self._connection.execute(
            "SELECT runs.run_id, placement, (SELECT max(generation) FROM requests"
            " WHERE requests.run_id = runs.run_id) FROM runs JOIN placements"
            " ON placements.run_id = runs.run_id AND number = placement"
            " WHERE closed = 0 AND runs.host = ? AND placed_t IS NOT NULL",
            (host,),
        ).fetchall()

    def close_run(self, run_id: str, answered: int) -> None:
        """Note that the box has nothing more to say; not so where a request newer than the answered
        generation has been made by now."""
        self._connection.execute(
            "UPDATE runs SET closed = 1 WHERE run_id = ?1"
            " AND (SELECT max(generation) FROM requests WHERE run_id = ?1) <= ?2",
            (run_id, answered),
        )

    def set_cleaned(self, run_id: str) -> None:
        self._connection.execute("UPDATE runs SET cleaned = 1 WHERE run_id = ?", (run_id,))

    def is_placed(self, run: Run) -> bool:
        row = self._connection.execute(
            "SELECT placed_t FROM placements WHERE run_id = ? AND number = ?",
            (run.run_id, run.placement),
        ).fetchone()
        return row is not None and row[0] is not None

    def folder(self, run: Run) -> str:
        """Where the run's newest placement lies on its host."""
        return str(self.recorded_folder(run.run_id))

    def recorded_folder(self, run_id: str, host: str | None = None) -> str | None:
        """Where a run's newest placement (on `host`, where that is named) lies; None where there is
        none."""
        row = self._connection.execute(
            "SELECT folder FROM placements WHERE run_id = ?1 AND (?2 IS NULL OR host = ?2)"
            " ORDER BY number DESC LIMIT 1",
            (run_id, host),
        ).fetchone()
        return None if row is None else str(row[0])

    def placements(self, run_id: str) -> list[tuple[int, str]]:
        """Number and host of each place where a run has stayed, the first one first."""
        return self._connection.execute(
            "SELECT number, host FROM placements WHERE run_id = ? ORDER BY number", (run_id,)
        ).fetchall()

    def migrate(self, run: Run, host: str, launcher: str, folder: str, t: float) -> bool:
        """Record that a run's files lie in a folder of another host by now, where it goes on.

        False, and nothing recorded, where another process has placed it meanwhile.
        """
        number = run.placement + 1
        with transaction(self._connection) as connection:
            moved = connection.execute(
                "UPDATE runs SET host = ?, placement = ?, closed = 0"
                " WHERE run_id = ? AND placement = ?",
                (host, number, run.run_id, run.placement),
            )
            if moved.rowcount == 0:
                return False
            connection.execute(
                "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run.run_id, number, host, launcher, folder, t, t),
            )
        return True

    def leave_behind(self, run_id: str, host: str, t: float) -> None:
        """Note that a run may still live on a host that was not reached when it went elsewhere."""
        name = _LEFT_BEHIND + json.dumps([run_id, host])
        self._connection.execute("REPLACE INTO facts VALUES (?, ?)", (name, str(t)))

    def left_behind(self) -> list[tuple[str, str]]:
        """Run and host of each that was noted so, and not stopped there yet."""
        rows = self._connection.execute(
            "SELECT name FROM facts WHERE substr(name, 1, ?) = ? ORDER BY name",
            (len(_LEFT_BEHIND), _LEFT_BEHIND),
        )
        found = [json.loads(name.removeprefix(_LEFT_BEHIND)) for (name,) in rows]
        return [(run_id, host) for run_id, host in found]

    def forget_left_behind(self, run_id: str, host: str) -> None:
        name = _LEFT_BEHIND + json.dumps([run_id, host])
        self._connection.execute("DELETE FROM facts WHERE name = ?", (name,))

    def set_placed(self, run: Run, t: float) -> None:
        self._connection.execute(
            "UPDATE placements SET placed_t = ? WHERE run_id = ? AND number = ?",
            (t, run.run_id, run.placement),
        )

    def request(
        self,
        run_id: str,
        desired: Desired,
        t: float,
        *,
        key: tuple[str, str] | None = None,
        became: tuple[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Record a newer request; the run is open again until it has been answered.

        `became`: the spec and the configuration that the run has from then on, where they change.
        False, and nothing recorded, where another process has asked for something meanwhile.
        """
        with transaction(self._connection) as connection:
            if self.desired(run_id)[0].generation >= desired.generation:
                return False
            self._insert_request(run_id, desired, t)
            connection.execute("UPDATE runs SET closed = 0 WHERE run_id = ?", (run_id,))
            if became is not None:
                spec, config = became
                connection.execute(
                    "UPDATE runs SET spec = ?, config = ?, labels = ? WHERE run_id = ?",
                    (spec, json.dumps(config), json.dumps(config["labels"]), run_id),
                )
            if key is not None:
                self._insert_key(key, "resume", run_id, t)
        return True

    def desired(self, run_id: str) -> tuple[Desired, bool]:
        """The newest request, and whether it has reached the host."""
        text, delivered_t = self._connection.execute(
            "SELECT desired, delivered_t FROM requests WHERE run_id = ?"
            " ORDER BY generation DESC LIMIT 1",
            (run_id,),
        ).fetchone()
        return Desired.of(decode_fields(text, "control.db")), delivered_t is not None

    def set_delivered(self, run_id: str, generation: int, t: float) -> None:
        self._connection.execute(
            "UPDATE requests SET delivered_t = ? WHERE run_id = ? AND generation = ?",
            (t, run_id, generation),
        )

    def run_of_key(self, key: str, action: str, asked: str) -> str | None:
        """The run that an idempotency key stands for; None for a new key.

        Raises:
            UsageError: `IDEMPOTENCY_CONFLICT`, the key was used for something else.
        """
        row = self._connection.execute(
            "SELECT action, asked, run_id FROM idempotency WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        if (row[0], row[1]) != (action, asked):
            raise UsageError(
                "IDEMPOTENCY_CONFLICT",
                f"The idempotency key {key!r} was used before, for run {row[2]}.",
                "Use a new key for a new request.",
            )
        return str(row[2])

    def put_host(self, host: HostRecord, t: float, *, new: bool = False) -> None:
        """Record a host, or what has changed about it.

        Raises:
            HostError: `HOST_EXISTS`, `new` was asked for and the name is taken.
        """
        with transaction(self._connection) as connection:
            if new and self._exists("hosts", "name", host.name):
                raise HostError(
                    "HOST_EXISTS",
                    f"A host is called {host.name!r} already.",
                    f"Take another name, or `trainmaster hosts remove {host.name}` first.",
                )
            connection.execute(
                "INSERT INTO hosts VALUES (?1, ?2, ?3)"
                " ON CONFLICT (name) DO UPDATE SET body = excluded.body",
                (host.name, json.dumps(host.to_dict()), t),
            )

    def host(self, name: str) -> HostRecord | None:
        row = self._connection.execute("SELECT body FROM hosts WHERE name = ?", (name,)).fetchone()
        return HostRecord(**json.loads(row[0])) if row else None

    def hosts(self) -> list[HostRecord]:
        """All hosts, by name."""
        rows = self._connection.execute("SELECT body FROM hosts ORDER BY name")
        return [HostRecord(**json.loads(row[0])) for row in rows]

    def remove_host(self, name: str) -> None:
        self._connection.execute("DELETE FROM hosts WHERE name = ?", (name,))

    def _exists(self, table: str, column: str, value: str) -> bool:
        query = f"SELECT 1 FROM {table} WHERE {column} = ?"
        return self._connection.execute(query, (value,)).fetchone() is not None

    def _insert_request(self, run_id: str, desired: Desired, t: float) -> None:
        self._connection.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, NULL)",
            (run_id, desired.generation, t, json.dumps(desired.to_dict())),
        )

    def _insert_key(self, key: tuple[str, str], action: str, run_id: str, t: float) -> None:
        self._connection.execute(
            "INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)", (key[0], action, key[1], run_id, t)
        )


def _run(row: sqlite3.Row | tuple[Any, ...]) -> Run:
    config: Mapping[str, Any] = json.loads(row[6])
    return Run(
        run_id=row[0],
        name=row[1],
        created_t=row[2],
        host=row[3],
        placement=row[4],
        spec=row[5],
        document=config,
        plan=json.loads(row[7]),
        labels=json.loads(row[8]),
        closed=bool(row[9]),
        cleaned=bool(row[10]),
    )
