"""Makes homes with thousands of runs: copies of one that a simulated training left behind.

    python tests/benchmarks/many_runs.py HOME [--closed 5000] [--open 400]

Ended runs are rows of both databases and files of the mirror. Open runs are on `local`, with real
folders and journals; one process holds the locks of all their supervisors and writes their
heartbeats, and two steps with each, until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.core.journal_records import attempt_starting, lines, metric, started, state
from support.runs.running_run import small_spec

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainer_runtime.host.files.layout import RunFolder
from trainmaster.home.assets import find_assets
from trainmaster.home.paths import Home
from trainmaster.plan.render import render_recorded
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.runs.lists.list_runs import list_runs
from trainmaster.runs.upkeep.maintain import due_runs, maintain, until_closed
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace, open_workspace

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
# Holds the supervisors' locks of the folders that standard input names, and beats for them.
_SUPERVISING = """
import fcntl, json, os, sys, time
folders = sys.stdin.read().splitlines()
locks = [os.open(folder + "/.supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600) for folder in folders]
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
parent, beat = os.getppid(), 100
while os.getppid() == parent:
    for folder in folders:
        line = {"v": 1, "seq": beat, "t": time.time(), "kind": "sample", "values": {}}
        with open(folder + "/supervisor.jsonl", "a") as file:
            file.write(json.dumps(line) + "\\n")
        with open(folder + "/attempts/1/events.jsonl", "a") as file:
            for step in (2 * beat, 2 * beat + 1):
                values = {"loss": 2 + 1 / step, "lr": 1e-3, "tokens_per_s": 9e3, "step_time_s": 5.0}
                line = {"v": 1, "seq": step, "t": time.time(), "kind": "metric", "step": step,
                        "values": values}
                file.write(json.dumps(line) + "\\n")
        time.sleep(10 / len(folders))
    beat += 1
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--closed", type=int, default=5000)
    parser.add_argument("--open", type=int, default=400, dest="opened")
    arguments = parser.parse_args()
    with home_of(arguments.home, arguments.closed, arguments.opened) as home:
        print(f"TRAINMASTER_HOME={home.root}; Ctrl-C ends the open runs' supervisors.")
        if arguments.opened:
            time.sleep(86400)


@contextmanager
def home_of(root: Path, closed: int, opened: int) -> Iterator[Home]:
    """A home with so many closed and open runs; inside, the open ones are supervised."""
    os.umask(0o077)
    with open_workspace({"TRAINMASTER_HOME": str(root)}) as workspace:
        sample = asyncio.run(sample_run(workspace, root.with_name(f"{root.name}-data")))
        home = workspace.home
        folders = _add_open(workspace, sample, opened)
    _add_closed(home, sample.run_id, closed - 1)
    with supervising(folders):
        yield home


async def sample_run(workspace: Workspace, folder: Path) -> Run:
    """A run that has completed and was maintained to its end, which every ended one is a copy
    of."""
    run_id = (await launch(workspace, small_spec(folder, host="debug"))).run_id
    await wait_for_event(workspace, run_id, until=("end",), timeout_s=120)
    await until_closed(workspace, run_id, 60)
    while due := due_runs(workspace):
        await maintain(workspace, due)
    await list_runs(workspace)
    return workspace.control.run(run_id)


def unsettle(home: Home) -> None:
    """Make the ended runs as an older version left them: not examined yet."""
    with closing(sqlite3.connect(home.control_db)) as database, database:
        database.execute("UPDATE runs SET closed = 1, ended_state = NULL WHERE closed > 0")


def _add_closed(home: Home, sample: str, count: int) -> None:
    names = [_run_id("ended", number) for number in range(count)]
    with closing(sqlite3.connect(home.control_db)) as database, database:
        for table in ("runs", "placements", "requests", "alert_runs"):
            _copy_rows(database, table, sample, names)
    with closing(sqlite3.connect(home.metrics_db)) as database, database:
        for table in ("offsets", "folds", "events"):
            _copy_rows(database, table, sample, names)
        _copy_series(database, sample, names)
    for name in names:
        _link_tree(home.mirror / sample, home.mirror / name)


def _copy_rows(database: sqlite3.Connection, table: str, sample: str, names: list[str]) -> None:
    found = database.execute(f"SELECT * FROM {table} WHERE run_id = ?", (sample,))
    columns = [column[0] for column in found.description]
    rows = found.fetchall()
    copies = []
    for number, name in enumerate(names):
        for row in rows:
            values = dict(zip(columns, row, strict=True)) | {"run_id": name}
            if table == "runs":
                values |= {"name": name.rpartition("-")[0], "created_t": 1.7e9 + number}
            copies.append(tuple(values.values()))
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)


def _copy_series(database: sqlite3.Connection, sample: str, names: list[str]) -> None:
    rows = database.execute("SELECT * FROM series WHERE run_id = ?", (sample,)).fetchall()
    (newest,) = database.execute("SELECT max(sid) FROM series").fetchone()
    for name in names:
        for sid, _, *rest in rows:
            newest += 1
            database.execute("INSERT INTO series VALUES (?, ?, ?, ?, ?, ?)", (newest, name, *rest))
            for table in ("blocks", "tails", "stats"):
                found = database.execute(f"SELECT * FROM {table} WHERE sid = ?", (sid,))
                marks = ", ".join("?" * len(found.description))
                copies = [(newest, *row[1:]) for row in found.fetchall()]
                database.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)


def _add_open(workspace: Workspace, sample: Run, count: int) -> list[str]:
    """Runs on `local` whose trainings are under way; their folders."""
    return add_open_runs(
        workspace, sample, count, Place("local", "process", workspace.home.local_root)
    )


@dataclass(frozen=True)
class Place:
    """A host, its launcher and its root as this machine sees it; `waiting`: how many of its runs
    have not begun."""

    host: str
    launcher: str
    root: Path
    waiting: int = 0


def add_open_runs(workspace: Workspace, sample: Run, count: int, place: Place) -> list[str]:
    """Runs whose trainings are under way, but for those that wait, which are last; the folders of
    those that have begun."""
    bundle = place.root / "bundle"
    for name, data in render_recorded(sample.document, sample.plan, find_assets()).files.items():
        path = bundle / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    now, folders = time.time(), []
    for number in range(count):
        run_id = _run_id("open", number)
        folder = place.root / "runs" / run_id
        document = {**sample.document, "run_id": run_id}
        run = replace(
            sample, run_id=run_id, name=f"open-{number}", created_t=now + number / 1000,
            host=place.host, document=document, closed=False,
        )  # fmt: skip
        desired = Desired(DesiredState.RUNNING, 1)
        workspace.control.add_run(run, desired, place.launcher, str(folder), None)
        workspace.control.set_placed(run, now)
        workspace.control.set_delivered(run_id, 1, now)
        _link_tree(bundle, folder)
        (folder / "config.json").unlink()
        (folder / "config.json").write_text(json.dumps(document))
        (folder / "desired.json").write_text(json.dumps(desired.to_dict()))
        if number < count - place.waiting:
            _write_journal(folder, now)
            folders.append(str(folder))
    return folders


def _write_journal(folder: Path, now: float) -> None:
    """As of a training that has made twenty steps."""
    run = RunFolder(folder)
    journal = [attempt_starting(1), ("attempt_running", {"attempt": 1}), state("running")]
    run.journal.write_bytes(b"".join(lines(journal, first_t=now - 30)))
    events = [started(0, 100), *(metric(step, lr=1e-3, mfu=0.4) for step in range(1, 21))]
    run.attempt(1).root.mkdir(parents=True)
    run.attempt(1).events.write_bytes(b"".join(lines(events, first_t=now - 25)))


@contextmanager
def supervising(folders: list[str]) -> Iterator[None]:
    """Inside, one process holds the locks of the supervisors of these folders, and beats."""
    if not folders:
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-c", _SUPERVISING],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        try:
            assert holder.stdin is not None and holder.stdout is not None
            holder.stdin.write("\n".join(folders))
            holder.stdin.close()
            holder.stdout.readline()
            yield
        finally:
            holder.kill()


def _run_id(name: str, number: int) -> str:
    letters = "".join(_LETTERS[number >> 5 * place & 31] for place in range(6))
    return f"{name}-{number}-{letters}"


def _link_tree(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, place)


if __name__ == "__main__":
    main()
