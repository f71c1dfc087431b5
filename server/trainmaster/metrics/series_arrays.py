"""Columns of a series as arrays: their aggregates and order, of many points at once."""

from __future__ import annotations

import math
from array import array

import numpy
from numpy.typing import NDArray

from trainmaster.store.buckets import Bucket, of_columns


def bucketed(
    steps: array[int], times: array[float], values: array[float], size: int
) -> list[Bucket]:
    """The points in buckets of `size` neighbours each; a time of NaN is unknown. As many points as
    fill whole buckets; the result is the same as that of `of_columns` for each."""
    of_steps, of_times, of_values = (
        numpy.frombuffer(column, column.typecode).reshape(-1, size)
        for column in (steps, times, values)
    )
    totals = numpy.array(list(map(sum, of_values.tolist())))  # another way rounds differently
    lows, highs = of_values.argmin(axis=1), of_values.argmax(axis=1)
    rows = numpy.arange(len(of_values))
    columns = (
        of_steps[:, 0],
        of_steps[:, -1],
        of_times[:, -1],
        of_values[:, -1],
        totals,
        of_values[rows, lows],
        of_steps[rows, lows],
        of_values[rows, highs],
        of_steps[rows, highs],
    )
    found = [
        Bucket(size, size, first, last, None if math.isnan(t) else t, value, *others)
        for first, last, t, value, *others in zip(*_lists(columns), strict=True)
    ]
    for row in numpy.flatnonzero(~numpy.isfinite(totals)).tolist():
        found[row] = of_columns(
            of_steps[row].tolist(), of_times[row].tolist(), of_values[row].tolist()
        )
    return found


def whole_numbers(steps: array[float]) -> array[int]:
    """Steps without what is behind their point."""
    return array("q", numpy.frombuffer(steps).astype(numpy.int64).tobytes())


def never_fall(steps: array[float]) -> bool:
    """Whether no step is lower than the one before."""
    return bool((numpy.diff(numpy.frombuffer(steps)) >= 0).all())


def last_of_highest(steps: array[int]) -> int:
    """Where the highest step is last."""
    backwards = numpy.frombuffer(steps, steps.typecode)[::-1]
    return len(backwards) - 1 - int(backwards.argmax())


def _lists(columns: tuple[NDArray[numpy.generic], ...]) -> list[list[object]]:
    return [column.tolist() for column in columns]
