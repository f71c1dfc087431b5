"""Sums over blocks, beside what a plain reading of the same points gives."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host.logical_clock import contents
from support.store.points import Point, add_points

from trainmaster.store.buckets import Bucket, Row, joined, of_rows
from trainmaster.store.metrics_store import MetricsStore
from trainmaster.store.rollup import LEVELS, Rollup, cover, stats

REPOSITORY = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
# Writes points in small transactions, some of them twice, until it is killed.
_WRITING = """
import sys
from pathlib import Path
from trainmaster.store.metrics_store import MetricsStore
store, seed = MetricsStore(Path(sys.argv[1])), int(sys.argv[2])
print("ready", flush=True)
step = 0
while True:
    with store.writing():
        offset = store.offset("run", 1, "log")
        rows = [(x, None, {"loss": x * 7919 % 1000.0}) for x in range(offset, offset + 37)]
        again = [(x, None, {"loss": -float(x)}) for x in range(max(0, offset - seed), offset, 9)]
        store.add_measured("run", 1, 1, 0, rows + again)
        store.move_offset("run", 1, "log", old=offset, new=offset + 37)
"""
values = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0, 1e308, -1e308])
)
# Where a batch begins, relative to the end so far; how many points; how far apart.
batches = st.lists(
    st.tuples(st.integers(-300, 5), st.integers(1, 400), st.integers(1, 3), values),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetricsStore]:
    store = MetricsStore(tmp_path / "metrics.db")
    yield store
    store.close()


def naive(rows: list[Row]) -> Bucket:
    finite = [row for row in rows if math.isfinite(row[2])]
    low = min((row[2] for row in finite), default=None)
    high = max((row[2] for row in finite), default=None)
    return Bucket(
        len(rows),
        len(finite),
        rows[0][0],
        rows[-1][0],
        rows[-1][1],
        rows[-1][2],
        sum(row[2] for row in finite),
        low,
        next((row[0] for row in finite if row[2] == low), None),
        high,
        next((row[0] for row in finite if row[2] == high), None),
    )


def is_same(found: Bucket, expected: Bucket) -> bool:
    """But for the order in which floats were added up."""
    total, other = found.total, expected.total
    close = (
        not (math.isfinite(total) and math.isfinite(other))
        or total == other
        or math.isclose(total, other, rel_tol=1e-9, abs_tol=1e-3)
        or abs(total - other) < 1e-12 * max(abs(found.high or 0), abs(found.low or 0))
    )
    return close and repr(found._replace(total=0.0)) == repr(expected._replace(total=0.0))


def assert_sums_are_those_of_the_points(store: MetricsStore, sid: int) -> None:
    rows = store.points(sid)
    n = len(rows) // LEVELS[0] * LEVELS[0]
    whole = stats(store.connection, sid)
    assert whole is None if n == 0 else is_same(whole, naive(rows[:n]))
    for level in LEVELS:
        blocks = store.connection.execute(
            "SELECT first_x, last_x, n FROM blocks WHERE sid = ? AND level = ? ORDER BY first_x",
            (sid, level),
        ).fetchall()
        parts = [rows[i : i + level] for i in range(0, len(rows) // level * level, level)]
        assert blocks == [(part[0][0], part[-1][0], level) for part in parts]
        found = cover(store.connection, sid, -(2**53), 2**53, level)
        assert sum(bucket.n for bucket in found) == len(rows)
        at = 0
        for bucket in found:
            assert is_same(bucket, naive(rows[at : at + bucket.n]))
            at += bucket.n


@pytest.mark.slow
@settings(max_examples=60)
@given(batches, st.data())
def test_sums_are_exact_whatever_comes_twice_or_out_of_order(
    batches: list[tuple[int, int, int, float]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, expected, end = MetricsStore(Path(folder, "m.db")), {}, 0
        for begin, count, apart, value in batches:
            xs = [max(0, end + begin) + apart * i for i in range(count)]
            points = [Point("loss", x, float(x), value * (x % 7 - 3) + 0.0) for x in xs]
            with store.writing():
                add_points(store, "run", 1, 1, 0, points)
            expected.update({point.x: point for point in points})
            end = max(end, xs[-1])
            if data.draw(st.booleans()):  # as another process would find it
                store.close()
                store = MetricsStore(Path(folder, "m.db"))
        (series,) = store.series("run", "loss")
        wanted = [(x, point.t, point.value) for x, point in sorted(expected.items())]
        assert repr(store.points(series.sid)) == repr(wanted)
        assert store.count_points() == len(wanted)
        assert_sums_are_those_of_the_points(store, series.sid)
        store.close()


def test_large_series_have_every_level(store: MetricsStore) -> None:
    made = random.Random(7)
    points = [Point("loss", x, float(x), made.random()) for x in range(9000)]
    with store.writing():
        add_points(store, "run", 1, 1, 0, points)
    (series,) = store.series("run", "loss")
    assert_sums_are_those_of_the_points(store, series.sid)
    levels = store.connection.execute("SELECT level, count(*) FROM blocks GROUP BY level")
    assert levels.fetchall() == [(64, 140), (512, 17), (4096, 2)]


def test_sums_do_not_depend_on_how_points_were_portioned(tmp_path: Path) -> None:
    points = [Point("loss", x, float(x), math.sin(x) / 3) for x in range(2000)]
    whole, pieces = MetricsStore(tmp_path / "whole.db"), MetricsStore(tmp_path / "pieces.db")
    with whole.writing():
        add_points(whole, "run", 1, 1, 0, points)
    at, made = 0, random.Random(3)
    while at < len(points):
        count = made.randrange(1, 150)
        with pieces.writing():
            add_points(pieces, "run", 1, 1, 0, points[at : at + count])
        at += count
    assert contents(whole) == contents(pieces)
    whole.close()
    pieces.close()


def test_more_series_than_are_remembered_lose_nothing(store: MetricsStore) -> None:
    keys = ("loss", "lr", "mfu", "grad_norm")
    with store.writing():
        add_points(store, "run", 1, 1, 0, [Point(key, 0, 0.0, 0.0) for key in keys])
    sids = [series.sid for key in keys for series in store.series("run", key)]
    rollup = Rollup(store.connection, most_heads=2)
    for at in range(1, 300, 50):
        with store.writing():
            for sid in sids:
                rollup.add(sid, [(x, float(x), x / 3) for x in range(at, min(at + 50, 300))])
    for key in keys:
        (series,) = store.series("run", key)
        assert store.points(series.sid) == [(x, float(x), x / 3) for x in range(300)]
        assert_sums_are_those_of_the_points(store, series.sid)


def test_a_range_is_covered_by_blocks_and_by_points_at_its_edges(store: MetricsStore) -> None:
    points = [Point("loss", 3 * x, None, float(x * 37 % 101)) for x in range(5000)]
    with store.writing():
        add_points(store, "run", 1, 1, 0, points)
    (series,) = store.series("run", "loss")
    for first, last in ((0, 14_997), (100, 100), (100, 101), (193, 9001), (14_000, 20_000)):
        rows = store.points(series.sid, last, first)
        found = cover(store.connection, series.sid, first, last, LEVELS[-1])
        assert (joined(found) if found else None) == (of_rows(rows) if rows else None)
        assert len(found) < 300


def test_sums_that_were_taken_back_with_their_points_are_forgotten(store: MetricsStore) -> None:
    with store.writing():
        add_points(store, "run", 1, 1, 0, [Point("loss", x, None, 1.0) for x in range(60)])
    with pytest.raises(ZeroDivisionError), store.writing():
        add_points(store, "run", 1, 1, 0, [Point("loss", x, None, -9.0) for x in range(60, 20_000)])
        raise ZeroDivisionError
    with store.writing():
        add_points(store, "run", 1, 1, 0, [Point("loss", x, None, 1.0) for x in range(60, 130)])
    (series,) = store.series("run", "loss")
    assert_sums_are_those_of_the_points(store, series.sid)


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_kill_while_points_are_written_leaves_sums_of_the_points_that_stand(
    tmp_path: Path, round_number: int
) -> None:
    path = tmp_path / "metrics.db"
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITING, str(path), str(40 + 100 * round_number)],
            env={**os.environ, "PYTHONPATH": f"{REPOSITORY}/server:{REPOSITORY}"},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        store = MetricsStore(path)
        begun = store.offset("run", 1, "log")
        while store.offset("run", 1, "log") < begun + 1000:
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.communicate()
        (series,) = store.series("run", "loss")
        assert len(store.points(series.sid)) == store.offset("run", 1, "log")
        assert_sums_are_those_of_the_points(store, series.sid)
        store.close()
