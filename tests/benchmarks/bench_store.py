"""The metrics database beside a plain table and other people's stores.

Points come in durable batches of 100, as from six metrics of one run. The promise: 300,000 a
second, a million in 200 buckets within 5 ms, the best of 200 runs within 1 ms. Peers are measured
where they are installed (`pip install tensorboard trackio mlflow-skinny`), else named. Figures are
of processor time, since the disk is everybody's; nothing here passes or fails.

    python tests/benchmarks/bench_store.py [--points 600000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import importlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from trainmaster.metrics.run_series import live_series
from trainmaster.metrics.series_sql import bests
from trainmaster.store.metrics_store import MetricsStore, Point

_KEYS = ("loss", "lr", "grad_norm", "tokens", "tokens_per_s", "mfu")
_BATCH = 100
_RUNS, _RUN_STEPS = 200, 20_000
_LONG = 1_000_000
# Slow stores get fewer points: they are reported by the second.
_SLOW_POINTS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    made = Random(7)
    points = [
        Point(key, step, 1e9 + step, made.random())
        for step in range(arguments.points // len(_KEYS))
        for key in _KEYS
    ]
    with tempfile.TemporaryDirectory() as folder:
        compare_writing(points, arguments.rounds, Path(folder))
        read(Path(folder, "read.db"))


def compare_writing(points: list[Point], rounds: int, folder: Path) -> None:
    best: dict[str, float] = {}
    for number in range(rounds):
        for name, write in (("a plain table", plain), ("trainmaster", ours)):
            place = folder / f"{name.split()[-1]}-{number}"
            began = time.process_time()
            write(points, place)
            taken = time.process_time() - began
            best[name] = min(best.get(name, taken), taken)
    reference = best["a plain table"]
    for name, taken in best.items():
        reported = (
            f"{len(points) / taken:9,.0f} points/s  {reference / taken:6.3f} of a plain table"
        )
        print(f"{name:16}{reported}")
    size = sum(path.stat().st_size for path in folder.glob("trainmaster-0*"))
    print(f"{'':16}{size / len(points):9.1f} bytes a point")
    few = points[:_SLOW_POINTS]
    for name, write in (("tensorboard", tensorboard), ("trackio", trackio), ("mlflow", mlflow)):
        measure_peer(name, write, few, folder / name, reference / len(points))


def ours(points: list[Point], path: Path) -> None:
    store = MetricsStore(path)
    for at in range(0, len(points), _BATCH):
        with store.writing():
            store.add_points("run", 1, 1, 0, points[at : at + _BATCH])
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


def measure_peer(
    name: str,
    write: Callable[[list[Point], Path], Callable[[], None]],
    points: list[Point],
    path: Path,
    plain_s: float,
) -> None:
    try:
        go = write(points, path)
    except ImportError:
        print(f"{name:16}not installed, not measured")
        return
    began = time.process_time()
    go()
    taken = (time.process_time() - began) / len(points)
    print(f"{name:16}{1 / taken:9,.0f} points/s  {plain_s / taken:6.3f} of a plain table")


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


def read(path: Path) -> None:
    store, made = MetricsStore(path), Random(3)
    with store.writing():
        for number in range(_RUNS):
            steps = range(_RUN_STEPS)
            points = [Point("loss", step, 1e9 + step, made.random()) for step in steps]
            store.add_points(f"run-{number}", 1, 1, 0, points)
        long = [Point("loss", step, 1e9 + step, made.random()) for step in range(_LONG)]
        store.add_points("long", 1, 1, 0, long)
    series = live_series(store, "long", 1, "loss", {1: 0})
    runs = [f"run-{number}" for number in range(_RUNS)]
    for name, work in (
        (f"{_LONG:,} points -> 200 buckets", lambda: series.cut(200)),
        (f"{_LONG:,} points -> 6 buckets", lambda: series.cut(6)),
        ("its last 100 points", lambda: series.between(_LONG - 100, None).rows()),
        ("its value at a step", lambda: series.until(_LONG // 2)),
        (f"best of {_RUNS} runs", lambda: list(bests(store, runs, "loss"))),
    ):
        print(f"{name:34}{best_ms(work):8.3f} ms")
    plainly = "SELECT x * 200 / 1000000, min(value), max(value), avg(value) FROM points"
    query = f"{plainly} WHERE sid = ? GROUP BY 1"
    sid = store.series("long", "loss")[0].sid
    taken = best_ms(lambda: store.connection.execute(query, (sid,)).fetchall(), 3)
    print(f"{'the 200 without sums':34}{taken:8.3f} ms")
    store.close()


def best_ms(work: Callable[[], object], rounds: int = 20) -> float:
    best = 1e9
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best * 1e3


if __name__ == "__main__":
    main()
