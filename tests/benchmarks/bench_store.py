"""The metrics database beside a plain SQLite table and other stores, in processor time.

Points come in durable batches of 100, as from six metrics of one run. Other stores are measured
where they are installed (`pip install tensorboard trackio mlflow-skinny`).

    python tests/benchmarks/bench_store.py [--turns 5] [--points 300000]
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import count, groupby
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import Goal, at_least, at_most
from support.benchmarks.turns import Sample, best, processor_seconds, rate
from support.store.points import Point, add_points

from trainer_runtime.core.protocol.lineage import Lineage, Start
from trainmaster.metrics.run_series import live_series
from trainmaster.metrics.series_sql import bests
from trainmaster.store.metrics_rows import Measured
from trainmaster.store.metrics_store import MetricsStore

_KEYS = ("loss", "lr", "grad_norm", "tokens", "tokens_per_s", "mfu")
_BATCH = 100
_RUNS, _RUN_STEPS = 200, 5_000
_LONG = 1_000_000
# Slow stores get fewer points: they are reported by the second.
_SLOW_POINTS = 3000


def measure(bench: Benchmark) -> None:
    made = Random(7)
    points = [
        Point(key, step, 1e9 + step, made.random())
        for step in range(int(bench.sizes["points"]) // len(_KEYS))
        for key in _KEYS
    ]
    with tempfile.TemporaryDirectory() as folder:
        compare_writing(bench, points, Path(folder))
        compare_others(bench, points[:_SLOW_POINTS], Path(folder))
        compare_reading(bench, Path(folder, "read.db"))


def compare_writing(bench: Benchmark, points: list[Point], folder: Path) -> None:
    numbers = count()

    def written(write: Callable[[list[Point], Path], None]) -> Sample:
        def work() -> None:
            write(points, folder / str(next(numbers)))

        return rate(work, len(points), of_processor=True)

    batches = batches_of(points)
    bench.compare(
        "points in durable batches of 100",
        "points/s",
        ours=written(lambda _, path: ours(batches, path)),
        peer=("a plain table", written(plain)),
        goal=at_least(300_000),
    )


def batches_of(points: list[Point]) -> list[list[Measured]]:
    """What a run's lines say, a step each; the last step of a batch is continued in the next."""
    return [
        [
            (x, step[0].t, {point.key: point.value for point in step})
            for x, alike in groupby(points[at : at + _BATCH], key=lambda point: point.x)
            if (step := list(alike))
        ]
        for at in range(0, len(points), _BATCH)
    ]


def ours(batches: Iterable[list[Measured]], path: Path) -> None:
    store = MetricsStore(path)
    for rows in batches:
        with store.writing():
            store.add_measured("run", 1, 1, 0, rows)
    store.close()


def plain(points: list[Point], path: Path) -> None:
    """The least that a table of (series, step, value) costs: no names, no sums."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE points (sid INTEGER, x INTEGER, value REAL, PRIMARY KEY (sid, x))"
        " WITHOUT ROWID"
    )
    sids = {key: number for number, key in enumerate(_KEYS)}
    for at in range(0, len(points), _BATCH):
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT OR REPLACE INTO points VALUES (?, ?, ?)",
            [(sids[point.key], point.x, point.value) for point in points[at : at + _BATCH]],
        )
        connection.execute("COMMIT")
    connection.close()


def compare_others(bench: Benchmark, points: list[Point], folder: Path) -> None:
    """Slow stores get few points, and so do we beside them."""
    for name, write in (("tensorboard", tensorboard), ("trackio", trackio), ("mlflow", mlflow)):
        try:
            go = write(points, folder / name)
        except ImportError:
            bench.not_run(f"{len(points)} points beside {name}", "not installed")
            continue
        own, rows = folder / f"beside-{name}", batches_of(points)
        bench.compare(
            f"{len(points)} points",
            "points/s",
            ours=rate(lambda own=own, rows=rows: ours(rows, own), len(points), of_processor=True),
            peer=(name, rate(go, len(points), of_processor=True)),
            turns=1,
        )


def tensorboard(points: list[Point], path: Path) -> Callable[[], None]:
    writing: Any = importlib.import_module("tensorboard.summary.writer.event_file_writer")
    proto: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")

    def go() -> None:
        writer = writing.EventFileWriter(str(path))
        for at in range(0, len(points), _BATCH):
            for point in points[at : at + _BATCH]:
                value = proto.Summary.Value(tag=point.key, simple_value=point.value)
                summary = proto.Summary(value=[value])
                writer.add_event(events.Event(step=point.x, wall_time=point.t, summary=summary))
            writer.flush()
        writer.close()

    return go


def trackio(points: list[Point], path: Path) -> Callable[[], None]:
    os.environ["TRACKIO_DIR"] = str(path)
    storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage

    def go() -> None:
        for at in range(0, len(points), _BATCH):
            batch = points[at : at + _BATCH]
            storage.bulk_log("p", "r", [{p.key: p.value} for p in batch], [p.x for p in batch])

    return go


def mlflow(points: list[Point], path: Path) -> Callable[[], None]:
    tracking: Any = importlib.import_module("mlflow.tracking")
    entities: Any = importlib.import_module("mlflow.entities")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    client = tracking.MlflowClient(tracking_uri=path.as_uri())
    run = client.create_run("0").info.run_id

    def go() -> None:
        for at in range(0, len(points), _BATCH):
            batch = points[at : at + _BATCH]
            client.log_batch(
                run, metrics=[entities.Metric(p.key, p.value, int(p.t or 0), p.x) for p in batch]
            )

    return go


def compare_reading(bench: Benchmark, path: Path) -> None:
    """Answers from sums kept while writing, beside the same query on the points themselves."""
    plain_path = path.with_name("plain.db")
    with closing(MetricsStore(path)) as store, closing(sqlite3.connect(plain_path)) as table:
        plain(_fill(store), plain_path)
        series = live_series(store, "long", 1, "loss", Lineage([Start(1, 0)]))
        runs = [f"run-{number}" for number in range(_RUNS)]

        def plainly(buckets: int) -> Callable[[], object]:
            query = (
                f"SELECT x * {buckets} / {_LONG}, min(value), max(value), avg(value) FROM points "
                "WHERE sid = 0 GROUP BY 1"
            )
            return lambda: table.execute(query).fetchall()

        reads: list[tuple[str, Callable[[], object], Callable[[], object] | None, Goal | None]] = [
            (f"{_LONG:,} points in 200", lambda: series.cut(200), plainly(200), at_most(5)),
            (f"{_LONG:,} points in 6", lambda: series.cut(6), plainly(6), None),
            ("its last 100 points", lambda: series.between(_LONG - 100, None).rows(), None, None),
            ("its value at a step", lambda: series.until(_LONG // 2), None, None),
            (f"best of {_RUNS} runs", lambda: list(bests(store, runs, "loss")), None, at_most(1)),
        ]
        for name, work, peer, goal in reads:
            bench.compare(
                name,
                "ms",
                ours=best(processor_seconds(work, 1e3), of=10),
                peer=peer and ("SQL over points", processor_seconds(peer, 1e3)),
                goal=goal,
                turns=3,
            )


def _fill(store: MetricsStore) -> list[Point]:
    """Runs, and one that is long; the points of that."""
    made = Random(3)
    with store.writing():
        for number in range(_RUNS):
            steps = range(_RUN_STEPS)
            points = [Point("loss", step, 1e9 + step, made.random()) for step in steps]
            add_points(store, f"run-{number}", 1, 1, 0, points)
        long = [Point("loss", step, 1e9 + step, made.random()) for step in range(_LONG)]
        add_points(store, "long", 1, 1, 0, long)
    return long


if __name__ == "__main__":
    run_benchmark(measure, points=Size(300_000, full=600_000))
