from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.answers.metrics import MetricSeries
from trainmaster.metrics.downsample import summarised
from trainmaster.store.buckets import Row, cut_rows, of_rows

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300)


def summarize(points: list[tuple[int, float]], most: int) -> MetricSeries:
    """`points` (x, value) in at most `most` values."""
    rows: list[Row] = [(x, None, value) for x, value in points]
    whole = len(rows) <= most
    buckets = [of_rows([row]) for row in rows] if whole else cut_rows(rows, most)
    return summarised(rows[0] if rows else None, buckets)


def series(*values: float) -> list[tuple[int, float]]:
    return list(enumerate(values, 1))


def test_few_points_are_given_as_they_are() -> None:
    found = summarize(series(3.0, 2.0, 1.0), 3)
    assert (found.steps, found.values) == ([1, 2, 3], [3.0, 2.0, 1.0])
    assert (found.n, found.first, found.last, found.min, found.max) == (3, 3.0, 1.0, 1.0, 3.0)
    assert found.lows is None


def test_a_bucket_has_its_mean_low_high_and_last_step() -> None:
    found = summarize(series(1.0, 3.0, 10.0, 20.0), 2)
    assert (found.steps, found.values) == ([2, 4], [2.0, 15.0])
    assert (found.lows, found.highs) == ([1.0, 10.0], [3.0, 20.0])


def test_a_spike_stays_visible_however_few_points_are_asked_for() -> None:
    found = summarize(series(*[2.0] * 500, 90.0, *[2.0] * 499), 10)
    assert found.highs is not None and max(float(high) for high in found.highs) == 90.0
    assert found.max == 90.0


def test_what_is_not_finite_is_counted_named_and_left_out_of_means() -> None:
    found = summarize(series(1.0, math.nan, 3.0, math.inf, math.nan, math.nan), 3)
    assert found.nonfinite == 4
    assert (found.min, found.max, found.last) == (1.0, 3.0, "NaN")
    assert found.values == [1.0, 3.0, "NaN"]
    json.dumps(found.model_dump(), allow_nan=False)


def test_no_points_give_an_empty_series() -> None:
    found = summarize([], 20)
    assert (found.n, found.steps, found.first, found.min) == (0, [], None, None)


@given(st.lists(finite, min_size=1, max_size=300), st.integers(1, 50))
def test_every_point_lies_in_some_bucket(values: list[float], most: int) -> None:
    found = summarize(series(*values), most)
    assert len(found.values) == len(found.steps) == min(most, len(values))
    assert found.steps[-1] == len(values)
    assert found.steps == sorted(set(found.steps))
    assert (found.n, found.min, found.max) == (len(values), min(values), max(values))
