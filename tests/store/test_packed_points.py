"""Points as bytes and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.store.buckets import Row
from trainmaster.store.packed_points import packed, unpacked

floats = st.floats(allow_nan=True, allow_infinity=True)
times = st.one_of(st.none(), st.floats(0, 1e11))
points = st.dictionaries(st.integers(-(2**53), 2**53), st.tuples(times, floats), min_size=1)


def there_and_back(rows: list[Row]) -> list[Row]:
    steps, moments, values = zip(*rows, strict=True)
    return unpacked(packed(steps, moments, values))


@given(points)
def test_points_come_back_as_they_were(points: dict[int, tuple[float | None, float]]) -> None:
    rows = [(x, t, value) for x, (t, value) in sorted(points.items())]
    assert repr(there_and_back(rows)) == repr(rows)


@pytest.mark.parametrize("apart", [1, 7, 1000])
@pytest.mark.parametrize("count", [1, 2, 64])
def test_steps_that_rise_evenly_take_no_room_each(apart: int, count: int) -> None:
    rows: list[Row] = [(5 + apart * i, None, math.sqrt(i)) for i in range(count)]
    assert repr(there_and_back(rows)) == repr(rows)
    steps, moments, values = zip(*rows, strict=True)
    assert len(packed(steps, moments, values)) == 17 + 16 * count
