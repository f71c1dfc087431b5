"""Runs, their placements, and the requests made of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.records import dataclass
from trainmaster.home import run_names
from trainmaster.store.control.facts import Facts
from trainmaster.store.control.idempotency import IdempotencyKey, IdempotencyKeys
from trainmaster.store.database import transaction
from trainmaster.store.run import Run

# The launcher of runs that train in Kaggle sessions.
KAGGLE_LAUNCHER = "kernel"
_LEFT_BEHIND = "left_behind "
_RUN_COLUMNS = (
    "run_id, name, created_t, host, placement, spec, config, plan, labels, closed, cleaned"
)


@dataclass(frozen=True, slots=True)
class NewConfig:
    """The spec and the resolved configuration that a run has after a resume changed them; `plan`
    where it was planned again."""

    spec: str
    config: ConfigDocument
    plan: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a run is placed: a folder of a host, and what launches it there."""

    host: str
    launcher: str
    folder: str


class RunRecords:
    """Each method is one transaction."""

    def __init__(self, connection: sqlite3.Connection, facts: Facts, keys: IdempotencyKeys) -> None:
        self._connection = connection
        self._facts = facts
        self._keys = keys

    def add_run(
        self, run: Run, desired: Desired, launcher: str, folder: str, key: IdempotencyKey | None
    ) -> Literal["added", "name taken", "key taken"]:
        """Record a run with its first placement and its first request, or nothing at all.

        Another process may take the name or the key at the last moment.
        """
        return self.add_runs([(run, folder)], desired, launcher, key)

    def add_runs(
        self,
        runs: Sequence[tuple[Run, str]],
        desired: Desired,
        launcher: str,
        key: IdempotencyKey | None,
    ) -> Literal["added", "name taken", "key taken"]:
        """The same of several runs, each with its folder; the key is the first one's."""
        with transaction(self._connection):
            if any(self._is_taken(run.name) for run, _ in runs):
                return "name taken"
            if key is not None and not self._keys.add(key, runs[0][0].run_id):
                return "key taken"
            for run, folder in runs:
                self._insert_run(run)
                self._insert_placement(
                    run.run_id, 1, run.host, launcher=launcher, folder=folder, t=run.created_t
                )
                self._insert_request(run.run_id, desired, run.created_t)
        return "added"

    def forget_unplaced(self, run_id: str) -> bool:
        """Remove a run of which nothing reached its host; False, and it is kept, where it did.

        A run on Kaggle reaches its host with its first session.
        """
        with transaction(self._connection) as connection:
            reached = connection.execute(
                "SELECT 1 FROM placements WHERE run_id = ?1 AND placed_t IS NOT NULL"
                " AND (launcher != ?2 OR EXISTS"
                " (SELECT 1 FROM kernel_sessions WHERE kernel_sessions.run_id = ?1))",
                (run_id, KAGGLE_LAUNCHER),
            )
            if reached.fetchone() is not None:
                return False
            self._keys.remove_run(run_id)
            for table in ("requests", "placements", "runs"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
        return True

    def free_name(self, wanted: str, others: Iterable[str] = ()) -> str:
        """`wanted`, or `wanted-N` with the first number that makes it unique, also in `others`."""
        taken = {row[0] for row in self._connection.execute("SELECT name FROM runs")} | {*others}
        number, name = 2, wanted
        while name in taken:
            name, number = f"{wanted}-{number}", number + 1
        return name

    def run(self, run: str) -> Run:
        """The run with this id, or the newest that was launched under this name.

        Raises:
            StateError: `RUN_NOT_FOUND`.
        """
        row = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs WHERE run_id = ?1 OR name = ?1", (run,)
        ).fetchone()
        if row is None:
            rows = self._connection.execute(
                "SELECT run_id, name FROM runs ORDER BY created_t DESC LIMIT 1000"
            )
            raise run_names.not_found(run, [name for row in rows for name in row])
        run_record = _run(row)
        if run_record.run_id == run or run_names.are_exact():
            return run_record
        newest = self.runs_of_line(run)[0]
        if newest.run_id != run_record.run_id:
            run_names.note_meant(run, newest.name)
        return newest

    def runs_of_line(self, name: str) -> list[Run]:
        """The runs that were launched under this name, newest first; none for an id."""
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs WHERE (name = ?1 OR name GLOB ?2) AND EXISTS"
            " (SELECT 1 FROM runs WHERE name = ?1) ORDER BY created_t DESC, rowid DESC",
            (name, f"{name}-[0-9]*"),
        )
        runs = [_run(row) for row in rows]
        return [run for run in runs if run_names.is_of_line(name, run.name, run.spec)]

    def runs(self, *, only_open: bool = False) -> list[Run]:
        """All runs, newest first."""
        where = "WHERE closed = 0" if only_open else ""
        rows = self._connection.execute(
            f"SELECT {_RUN_COLUMNS} FROM runs {where} ORDER BY created_t DESC, run_id"
        )
        return [_run(row) for row in rows]

    def run_ids(self) -> set[str]:
        return {row[0] for row in self._connection.execute("SELECT run_id FROM runs")}

    def due_runs(self) -> list[tuple[str, bool]]:
        """Open runs, and closed ones of which it is not settled that nothing is left to do; newest
        first, by id, each with whether it is closed."""
        rows = self._connection.execute(
            "SELECT run_id, closed FROM runs WHERE closed < 2 ORDER BY created_t DESC, run_id"
        )
        return [(run_id, bool(closed)) for run_id, closed in rows]

    def settle(self, run_ids: Iterable[str]) -> None:
        """Record that nothing is left to do for these closed runs, until a request opens one."""
        with transaction(self._connection) as connection:
            connection.executemany(
                "UPDATE runs SET closed = 2 WHERE run_id = ? AND closed = 1",
                [(run_id,) for run_id in run_ids],
            )

    def hosts_of_open_runs(self) -> list[str]:
        rows = self._connection.execute("SELECT DISTINCT host FROM runs WHERE closed = 0")
        return [row[0] for row in rows]

    def open_runs(self, host: str) -> list[tuple[str, int, int]]:
        """(run, placement, generation of the newest request) of a host's open runs that are placed.

        Called several times a second: reads no specs, configurations or plans.
        """
        return self._connection.execute(
            "SELECT runs.run_id, placement, (SELECT max(generation) FROM requests"
            " WHERE requests.run_id = runs.run_id) FROM runs JOIN placements"
            " ON placements.run_id = runs.run_id AND number = placement"
            " WHERE closed = 0 AND runs.host = ? AND placed_t IS NOT NULL",
            (host,),
        ).fetchall()

    def close_run(self, run_id: str, answered: int) -> None:
        """Record that the run ended and its files were read to the end.

        Does nothing where a request newer than the `answered` generation exists.
        """
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
        """The folder of the run's newest placement on its host."""
        return str(self.recorded_folder(run.run_id))

    def recorded_folder(self, run_id: str, host: str | None = None) -> str | None:
        """The folder of a run's newest placement, on `host` if given; None without a placement."""
        row = self._connection.execute(
            "SELECT folder FROM placements WHERE run_id = ?1 AND (?2 IS NULL OR host = ?2)"
            " ORDER BY number DESC LIMIT 1",
            (run_id, host),
        ).fetchone()
        return None if row is None else str(row[0])

    def placements(self, run_id: str) -> list[tuple[int, str]]:
        """Number and host of each placement of a run, oldest first."""
        return self._connection.execute(
            "SELECT number, host FROM placements WHERE run_id = ? ORDER BY number", (run_id,)
        ).fetchall()

    def place_elsewhere(
        self, run: Run, where: Placed, t: float, new_config: NewConfig | None = None
    ) -> bool:
        """Record that a run was migrated to a folder of another host.

        False, and nothing recorded, where another process has placed it meanwhile.
        """
        number = run.placement + 1
        with transaction(self._connection) as connection:
            moved = connection.execute(
                "UPDATE runs SET host = ?, placement = ?, closed = 0, ended_state = NULL"
                " WHERE run_id = ? AND placement = ?",
                (where.host, number, run.run_id, run.placement),
            )
            if moved.rowcount == 0:
                return False
            self._insert_placement(
                run.run_id,
                number,
                where.host,
                launcher=where.launcher,
                folder=where.folder,
                t=t,
            )
            self._set_placed(run.run_id, number, t)
            if new_config is not None:
                self._set_config(run.run_id, new_config)
        return True

    def leave_behind(self, run_id: str, host: str, t: float) -> None:
        """Record that a run may still be alive on a host that was unreachable when it migrated."""
        self._facts.put(_LEFT_BEHIND + json.dumps([run_id, host]), str(t))

    def left_behind(self) -> list[tuple[str, str]]:
        """Run and host of each run recorded by `leave_behind` that was not stopped there yet."""
        pairs = [json.loads(name) for name in self._facts.suffixes(_LEFT_BEHIND)]
        return [(run_id, host) for run_id, host in pairs]

    def forget_left_behind(self, run_id: str, host: str) -> None:
        self._facts.remove(_LEFT_BEHIND + json.dumps([run_id, host]))

    def set_placed(self, run: Run, t: float) -> None:
        self._set_placed(run.run_id, run.placement, t)

    def set_unplaced(self, run: Run) -> None:
        """Record that the run's files were removed before anything was started."""
        self._connection.execute(
            "UPDATE placements SET placed_t = NULL WHERE run_id = ? AND number = ?",
            (run.run_id, run.placement),
        )

    def request(
        self,
        run_id: str,
        desired: Desired,
        t: float,
        *,
        key: IdempotencyKey | None = None,
        new_config: NewConfig | None = None,
    ) -> bool:
        """Record a newer request; the run is open again until it has been answered.

        False, and nothing recorded, where another process has made a request meanwhile.
        """
        with transaction(self._connection) as connection:
            if self.desired(run_id)[0].generation >= desired.generation:
                return False
            if key is not None and not self._keys.add(key, run_id):
                return False
            self._insert_request(run_id, desired, t)
            connection.execute(
                "UPDATE runs SET closed = 0, ended_state = NULL WHERE run_id = ?", (run_id,)
            )
            if new_config is not None:
                self._set_config(run_id, new_config)
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

    def _is_taken(self, name: str) -> bool:
        rows = self._connection.execute("SELECT 1 FROM runs WHERE name = ?", (name,))
        return rows.fetchone() is not None

    def _insert_run(self, run: Run) -> None:
        documents = (json.dumps(run.document), json.dumps(run.plan), json.dumps(run.labels))
        self._connection.execute(
            f"INSERT INTO runs ({_RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
            (run.run_id, run.name, run.created_t, run.host, 1, run.spec, *documents),
        )

    def _insert_placement(
        self, run_id: str, number: int, host: str, *, launcher: str, folder: str, t: float
    ) -> None:
        self._connection.execute(
            "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (run_id, number, host, launcher, folder, t),
        )

    def _set_config(self, run_id: str, new: NewConfig) -> None:
        self._connection.execute(
            "UPDATE runs SET spec = ?, config = ?, labels = ? WHERE run_id = ?",
            (new.spec, json.dumps(new.config), json.dumps(new.config["labels"]), run_id),
        )
        if new.plan is not None:
            planned = (json.dumps(new.plan), run_id)
            self._connection.execute("UPDATE runs SET plan = ? WHERE run_id = ?", planned)

    def _set_placed(self, run_id: str, number: int, t: float) -> None:
        self._connection.execute(
            "UPDATE placements SET placed_t = ? WHERE run_id = ? AND number = ?",
            (t, run_id, number),
        )

    def _insert_request(self, run_id: str, desired: Desired, t: float) -> None:
        self._connection.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?, NULL)",
            (run_id, desired.generation, t, json.dumps(desired.to_dict())),
        )


@lru_cache(maxsize=512)  # so many unchanged rows are decoded once in a server's life
def _run(row: tuple[Any, ...]) -> Run:
    run_id, name, created_t, host, placement, spec, *documents, closed, cleaned = row
    config, plan, labels = map(json.loads, documents)
    return Run(
        run_id, name, created_t, host, spec, config, plan, labels,
        placement=placement, closed=bool(closed), cleaned=bool(cleaned),
    )  # fmt: skip
