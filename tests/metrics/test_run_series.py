"""A run's series, read by its sums, beside a plain merge of all of its points."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.store.points import Point, add_points

from trainer_runtime.core.protocol.lineage import Lineage, Start
from trainmaster.metrics.run_series import RunSeries, live_series
from trainmaster.metrics.series_sql import bests
from trainmaster.store.buckets import Bucket, Row, cut_rows, joined, of_rows
from trainmaster.store.metrics_store import MetricsStore

# Attempts: the step each started from, how many points it came to, how often a point, and how far
# its steps went back once in the middle.
attempts = st.lists(
    st.tuples(
        st.integers(0, 400), st.integers(0, 500), st.integers(1, 3), st.sampled_from([0, 0, 50])
    ),
    min_size=1,
    max_size=4,
)


@contextmanager
def stored(
    attempts: list[tuple[int, int, int, int]],
) -> Iterator[tuple[MetricsStore, Lineage, dict[int, Row]]]:
    """A store with a run of these attempts; their lineage; and the run's points by step."""
    lineage = Lineage(Start(number, start) for number, (start, *_) in enumerate(attempts, 1))
    merged: dict[int, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = MetricsStore(Path(folder, "metrics.db"))
        for number, (start, count, every, back) in enumerate(attempts, 1):
            until = lineage.live_until(number)
            half = start + every * (count // 2)
            first = range(start + every, half + 1, every)
            second = range(half + every - back, start + every * count + 1, every)
            for segment, steps in enumerate((first, second)):
                points = [point(number, segment, step) for step in steps if step > 0]
                with store.writing():
                    add_points(store, "run", 1, number, segment, points)
                merged.update({p.x: (p.x, p.t, p.value) for p in points if p.x <= until})
        yield store, lineage, merged
        store.close()


def point(attempt: int, segment: int, step: int) -> Point:
    value = float(step * 7919 % 1009) + attempt / 10 + segment / 100
    return Point("loss", step, 1000.0 * attempt + step, math.nan if step % 97 == 0 else value)


def of(store: MetricsStore, lineage: Lineage) -> RunSeries:
    return live_series(store, "run", 1, "loss", lineage)


@settings(max_examples=60)
@given(attempts, st.integers(0, 1500), st.integers(0, 1500))
def test_every_way_of_reading_a_run_gives_the_same_points(
    attempts: list[tuple[int, int, int, int]], a: int, b: int
) -> None:
    with stored(attempts) as (store, lineage, merged):
        series, rows = of(store, lineage), [merged[x] for x in sorted(merged)]
        assert repr(series.rows()) == repr(rows)
        assert is_same(series.whole(), rows)
        first, last = min(a, b), max(a, b)
        part = [row for row in rows if first <= row[0] <= last]
        assert is_same(series.between(first, last).whole(), part)
        until = [row for row in rows if row[0] <= a]
        assert repr(series.until(a)) == repr(until[-1] if until else None)
        onward = [row for row in rows if row[0] >= a]
        assert repr(series.from_(a)) == repr(onward[0] if onward else None)
        for most in (1, 2, 5, 1000):
            cut = series.cut(most)
            assert len(cut) == min(most, len(rows)) or len(rows) > 128 * most
            assert is_same(joined(cut) if cut else None, rows)
            assert_parts(cut, rows)


def assert_parts(cut: list[Bucket], rows: list[Row]) -> None:
    at = 0
    for bucket in cut:
        assert is_same(bucket, rows[at : at + bucket.n])
        at += bucket.n


def is_same(found: Bucket | None, rows: list[Row]) -> bool:
    if found is None:
        return not rows
    expected = of_rows(rows)
    close = math.isclose(found.total, expected.total, rel_tol=1e-9, abs_tol=1e-9)
    return close and repr(found._replace(total=0)) == repr(expected._replace(total=0))


@settings(max_examples=40)
@given(attempts)
def test_the_best_of_each_stored_series_is_that_of_its_points(
    attempts: list[tuple[int, int, int, int]],
) -> None:
    with stored(attempts) as (store, _, _):
        for highest in (False, True):
            found = {
                best.series: (best.x, best.value)
                for best in bests(store, ["run", "other"], "loss", highest=highest)
            }
            for series in store.series("run", "loss"):
                finite = [row for row in store.points(series.sid) if math.isfinite(row[2])]
                if not finite:
                    assert series not in found
                    continue
                value = (max if highest else min)(row[2] for row in finite)
                assert found[series] == (next(r[0] for r in finite if r[2] == value), value)


@pytest.mark.slow
def test_buckets_of_a_long_run_differ_little_in_size(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path / "metrics.db")
    with store.writing():
        add_points(store, "run", 1, 1, 0, [point(1, 0, step) for step in range(1, 60_001)])
        add_points(store, "run", 1, 2, 0, [point(2, 0, step) for step in range(50_001, 100_001)])
    series = of(store, Lineage([Start(1, 0), Start(2, 50_000)]))
    rows = series.rows()
    for most in (1, 6, 20, 200):
        cut = series.cut(most)
        assert len(cut) == most
        sizes = [bucket.n for bucket in cut]
        assert max(sizes) <= 1.6 * min(sizes)
        assert_parts(cut, rows)
        assert cut_rows(rows, most)[0].first_x == cut[0].first_x
    store.close()


def test_what_came_since_a_moment_begins_with_the_first_point_measured_then(
    tmp_path: Path,
) -> None:
    store = MetricsStore(tmp_path / "metrics.db")
    with store.writing():
        add_points(store, "run", 1, 1, 0, [Point("loss", x, 10.0 * x, 1.0) for x in range(1, 500)])
        add_points(store, "run", 1, 2, 0, [Point("loss", x, 1e4 + x, 1.0) for x in range(301, 400)])
    series = of(store, Lineage([Start(1, 0), Start(2, 300)]))
    for t, first in ((0.0, 1), (11.0, 2), (2990.0, 299), (3001.0, 301), (1e4 + 350, 350)):
        rows = series.since(t).rows()
        assert (rows[0][0], rows[-1][0]) == (first, 399)
    assert series.since(1e6).rows() == []
    store.close()
