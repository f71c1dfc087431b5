"""Reduces a curve to the points that a picture can show: means with lows and highs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainmaster.metrics.plots.sketch import Points

# An interval is usual up to this quantile: logging may become less frequent later.
_USUAL, _PAUSE, _FEWEST_GAPS = 0.9, 10.0, 4


@dataclass(frozen=True, slots=True)
class Buckets:
    """Columns of equal length. `nonfinite`: the x of values that are not finite."""

    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    nonfinite: Sequence[float]


def bucketed(points: Points, most: int) -> Buckets:
    """`points` (x, value), rising in x, in at most `most` columns of about equally many values."""
    finite = [(x, value) for x, value in points if math.isfinite(value)]
    parts = _parts(finite, most)
    return Buckets(
        x=[part[len(part) // 2][0] for part in parts],
        mean=[sum(value for _, value in part) / len(part) for part in parts],
        low=[min(value for _, value in part) for part in parts],
        high=[max(value for _, value in part) for part in parts],
        nonfinite=[x for x, value in points if not math.isfinite(value)],
    )


def broken(buckets: Buckets) -> Buckets:
    """With a hole wherever no point was reported for ten times the usual interval."""
    gaps = sorted(after - before for before, after in pairwise(buckets.x))
    if len(gaps) < _FEWEST_GAPS:
        return buckets
    longest = _PAUSE * gaps[int(_USUAL * (len(gaps) - 1))]
    holes = [
        index
        for index, (before, after) in enumerate(pairwise(buckets.x), start=1)
        if after - before > longest > 0
    ]
    if not holes:
        return buckets
    return Buckets(
        x=_with_holes(buckets.x, holes),
        mean=_with_holes(buckets.mean, holes),
        low=_with_holes(buckets.low, holes),
        high=_with_holes(buckets.high, holes),
        nonfinite=buckets.nonfinite,
    )


def _with_holes(column: Sequence[float], holes: Sequence[int]) -> list[float]:
    edges = [0, *holes, len(column)]
    parts = [list(column[start:end]) for start, end in pairwise(edges)]
    return [*parts[0], *(value for part in parts[1:] for value in (math.nan, *part))]


def _parts(points: Points, most: int) -> list[Points]:
    if len(points) <= most:
        return [[point] for point in points]
    return [points[len(points) * i // most : len(points) * (i + 1) // most] for i in range(most)]
