"""Commands by an earlier checkout and by this one, in turns, each over a home that it made itself.

`--before` names the checkout; training and start take it too. Open and ended runs are copies of one
that each version launched; a process holds the locks of the open ones' supervisors.

    python tests/benchmarks/bench_earlier.py --before DIR [--ended 100] [--open 20] [--mb 20]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_many_runs import call_s
from many_runs import supervising
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.trainings import REPOSITORY
from support.benchmarks.turns import Sample, command_processor_seconds, command_seconds
from support.runs.running_run import kill_processes, small_spec

_PROGRAM = [sys.executable, "-c", "from trainmaster.cli import main; main()"]
_COMMANDS = {"--help": ["--help"], "status": ["status", "small-1"], "runs": ["runs"]}
_WITHIN_S = 300.0


def measure(bench: Benchmark) -> None:
    if bench.before is None:
        bench.not_run("an earlier version", "--before names no checkout")
        return
    ended, opened = int(bench.sizes["ended"]), int(bench.sizes["open"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"before": bench.before.resolve(), "ours": REPOSITORY}
        sides = {name: Side(tree, folder / name) for name, tree in trees.items()}
        for side in sides.values():
            stack.enter_context(side.with_runs(ended, opened))
        for name, arguments in _COMMANDS.items():
            compare(bench, f"{name}, {ended} ended runs", "s of processor", {
                side: each.processor(arguments) for side, each in sides.items()
            })  # fmt: skip
        compare(bench, f"list_runs, {ended} ended and {opened} open runs", "ms", {
            side: each.called("list_runs") for side, each in sides.items()
        })  # fmt: skip
        compare(bench, f"tick of {opened} open runs", "s", {
            side: each.taken(["tick", "--json"]) for side, each in sides.items()
        })  # fmt: skip
        log, size_mb = folder / "train.log", bench.sizes["mb"]
        write_log(log, size_mb)
        compare(bench, f"metrics FILE of {size_mb:,.0f} MB", "s", {
            side: each.taken(["metrics", str(log), "--json"]) for side, each in sides.items()
        })  # fmt: skip


def compare(bench: Benchmark, name: str, unit: str, sides: Mapping[str, Sample]) -> None:
    bench.compare(name, unit, ours=sides["ours"], before=sides["before"])


class Side:
    """The command line of a checkout, and a home that it made."""

    def __init__(self, tree: Path, home: Path) -> None:
        self._home = home
        paths = os.pathsep.join((str(tree / "server"), str(tree)))
        cache = str(home.with_name(f"{home.name}-compiled"))
        self._environment = {
            "PYTHONPATH": paths,
            "PYTHONSAFEPATH": "1",  # packages of the working folder would come first
            "PYTHONPYCACHEPREFIX": cache,
            "PYTHONDONTWRITEBYTECODE": "",
            "TRAINMASTER_HOME": str(home),
            "TMUX_TMPDIR": str(home),
        }

    @contextmanager
    def with_runs(self, ended: int, opened: int) -> Iterator[None]:
        """Inside, the home has so many runs of each kind."""
        self._home.mkdir()
        os.chmod(self._home, 0o700)
        done = self._launch("small", host="debug")
        self._run("wait", done, "--until", "end", "--timeout", str(_WITHIN_S))
        self._copy(done, "small", [f"small-{number}" for number in range(1, ended + 1)])
        live = self._launch("live", host="local", steps="100000")
        self._run("wait", live, "--until", "step:20", "--timeout", str(_WITHIN_S))
        kill_processes(self._home / "local")
        names = [f"live-{number}" for number in range(1, opened + 1)]
        self._copy(live, "live", names)
        folders = [str(self._home / "local" / "runs" / of_name(live, name)) for name in names]
        with supervising([*folders, str(self._home / "local" / "runs" / live)]):
            self._run("tick", "--json")
            yield

    def processor(self, arguments: list[str]) -> Sample:
        return command_processor_seconds([*_PROGRAM, *arguments], self._environment)

    def taken(self, arguments: list[str]) -> Sample:
        return command_seconds([*_PROGRAM, *arguments], self._environment)

    def called(self, tool: str) -> Sample:
        """The median milliseconds of a call of a tool."""
        return lambda: 1e3 * asyncio.run(call_s([*_PROGRAM, "mcp"], self._environment, tool, {}))

    def _launch(self, name: str, **changes: str) -> str:
        data = self._home.with_name(f"{self._home.name}-{name}")
        data.mkdir()
        spec = data / "spec.yaml"
        spec.write_text(small_spec(data, name=name, **changes))
        return str(json.loads(self._run("launch", str(spec), "--json"))["run_id"])

    def _run(self, *arguments: str) -> str:
        return subprocess.check_output(
            [*_PROGRAM, *arguments],
            env={**os.environ, **self._environment},
            text=True,
        )

    def _copy(self, sample: str, name: str, names: list[str]) -> None:
        """Copies of a run: its rows, its mirror and its folder."""
        renamed = {one: {sample: of_name(sample, one), name: one} for one in names}
        for database in ("control.db", "metrics.db"):
            with closing(sqlite3.connect(self._home / database)) as connection, connection:
                for table in tables_of_runs(connection):
                    copy_rows(connection, table, sample, renamed)
        for parent in ("mirror", "local/runs"):
            source = self._home / parent / sample
            for one in names if source.is_dir() else ():
                target = source.with_name(of_name(sample, one))
                shutil.copytree(source, target, symlinks=True)


def of_name(sample: str, name: str) -> str:
    """The id of a copy: other letters at the end would not be an id."""
    return f"{name}-{sample.rpartition('-')[2]}"


def tables_of_runs(connection: sqlite3.Connection) -> list[str]:
    """The tables with a row or more for each run, but for points, which no command here reads."""
    tables = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE sql != ''")
    ]
    found = []
    for table in tables:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if "run_id" in columns and "sid" not in columns:
            found.append(table)
    return found


def copy_rows(
    connection: sqlite3.Connection, table: str, sample: str, renamed: Mapping[str, dict[str, str]]
) -> None:
    rows = connection.execute(f"SELECT * FROM {table} WHERE run_id = ?", (sample,)).fetchall()
    for names in renamed.values():
        for row in rows:
            values = [renamed_value(value, names) for value in row]
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)


def renamed_value(value: object, names: Mapping[str, str]) -> object:
    """A run's id wherever it stands; its name where that is the whole value."""
    if not isinstance(value, str):
        return value
    sample, _ = names
    return names.get(value, value.replace(sample, names[sample]))


def write_log(path: Path, size_mb: float) -> None:
    """nanoGPT's log, of so many MB."""
    drawn, step, written = random.Random(7), 0, 0
    with path.open("w") as file:
        while written < size_mb * 1e6:
            loss, ms, mfu = drawn.uniform(2, 4), drawn.uniform(20, 40), drawn.uniform(30, 40)
            line = f"iter {step}: loss {loss:.4f}, time {ms:.2f}ms, mfu {mfu:.2f}%\n"
            written += file.write(line)
            step += 1


if __name__ == "__main__":
    run_benchmark(
        measure,
        ended=Size(100, full=1000),
        open=Size(20, full=200),
        mb=Size(20, full=2000),
    )
