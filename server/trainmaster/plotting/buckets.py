"""A curve in as many points as a picture can show: means, with the lows and highs they hide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.plotting.sketch import Points


@dataclass(frozen=True, slots=True)
class Buckets:
    """Columns alike in length. `nonfinite`: the x of values that are no numbers."""

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


def _parts(points: Points, most: int) -> list[Points]:
    if len(points) <= most:
        return [[point] for point in points]
    return [points[len(points) * i // most : len(points) * (i + 1) // most] for i in range(most)]
