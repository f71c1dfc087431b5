from __future__ import annotations

import json
import math

from trainer_runtime.core.protocol.curve import MOST_VALUES, Curve, merged, sparkline


def test_a_curve_of_any_length_stays_bounded_and_keeps_its_shape() -> None:
    curve = Curve()
    for step in range(1, 100_001):
        curve.add(step, 1.0 / step)
        assert len(curve.values) < MOST_VALUES and len(curve.xs) == len(curve.values)
    values = [value for value in curve.values if value is not None]
    assert values == sorted(values, reverse=True)
    assert curve.xs == sorted(curve.xs) and curve.xs[-1] > 95_000


def test_a_restored_fold_continues_the_same() -> None:
    whole, parted = Curve(), Curve()
    for step in range(1000):
        whole.add(step, math.sin(step))
        parted.add(step, math.sin(step))
        if step % 37 == 0:
            parted = Curve.from_dict(json.loads(json.dumps(parted.to_dict())))
    assert parted == whole


def test_what_is_not_finite_leaves_the_mean_of_its_neighbours() -> None:
    curve = Curve(per_value=2)
    for step, value in enumerate([1.0, math.nan, math.inf, math.nan]):
        curve.add(step, value)
    assert curve.values == [1.0, None]
    assert sparkline(curve.values) == "▁!"


def test_points_beyond_a_resume_are_left_out() -> None:
    curve = Curve()
    for step in range(5):
        curve.add(step, float(step))
    assert curve.until(2) == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_values_are_merged_evenly() -> None:
    assert merged([1.0, 3.0, None, None], 2) == [2.0, None]
    assert merged([1.0], 8) == [1.0]
