"""Buckets: aggregates over neighbouring points of a series, which can be joined again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

# A point of one series: x, Unix seconds (None if unknown), value.
Row = tuple[int, float | None, float]


class Bucket(NamedTuple):
    """`n` neighbouring points, `finite` of them finite; `total`, `low` and `high` cover those.

    `low_x` and `high_x` are where the extremes occur first. `last` is the last point's value. A
    tuple, since one answer creates tens of thousands.
    """

    n: int
    finite: int
    first_x: int
    last_x: int
    last_t: float | None
    last: float
    total: float
    low: float | None
    low_x: int | None
    high: float | None
    high_x: int | None

    @property
    def mean(self) -> float:
        """The mean of the finite values; the last value where none is finite."""
        if self.low is None or self.high is None:
            return self.last
        if math.isfinite(self.total):
            # Rounding must not carry the mean of equal values past them.
            return min(self.high, max(self.low, self.total / self.finite))
        return self.low / 2 + self.high / 2  # the sum overflowed


def of_rows(rows: Sequence[Row]) -> Bucket:
    """The bucket of one or more points, in order."""
    return of_columns(*zip(*rows, strict=True))


def of_columns(
    steps: Sequence[int], times: Sequence[float | None], values: Sequence[float]
) -> Bucket:
    """The bucket of one or more points by column, in order; a time of NaN or None is unknown."""
    total = sum(values)
    last_t = times[-1]
    if last_t is not None and math.isnan(last_t):
        last_t = None
    if not math.isfinite(total):
        points = zip(steps, values, strict=True)
        return _of_nonfinite_rows([(x, None, value) for x, value in points])._replace(last_t=last_t)
    low, high, n = min(values), max(values), len(values)
    low_x, high_x = steps[values.index(low)], steps[values.index(high)]
    return Bucket(n, n, steps[0], steps[-1], last_t, values[-1], total, low, low_x, high, high_x)


def joined(buckets: Sequence[Bucket]) -> Bucket:
    """One or more neighbouring buckets as one."""
    if len(buckets) == 1:
        return buckets[0]
    n, finite, first_x, last_x, last_t, last, total, lows, low_xs, highs, high_xs = zip(
        *buckets, strict=True
    )
    low = min((low for low in lows if low is not None), default=None)
    high = max((high for high in highs if high is not None), default=None)
    return Bucket(
        sum(n),
        sum(finite),
        first_x[0],
        last_x[-1],
        last_t[-1],
        last[-1],
        sum(total),
        low,
        None if low is None else low_xs[lows.index(low)],
        high,
        None if high is None else high_xs[highs.index(high)],
    )


def joined_in_turn(buckets: Iterable[Bucket]) -> Bucket:
    """The same with sums added from left to right: joining an earlier result with the buckets after
    it gives exactly the sum of all."""
    return reduce(lambda before, after: joined((before, after)), buckets)


def cut_rows(rows: Sequence[Row], maximum: int) -> list[Bucket]:
    """The points in at most `maximum` buckets that differ by at most one in size."""
    count = min(maximum, len(rows))
    edges = [len(rows) * i // count for i in range(count + 1)] if count else []
    return [of_rows(rows[a:b]) for a, b in pairwise(edges)]


def cut_buckets(buckets: Sequence[Bucket], maximum: int) -> list[Bucket]:
    """The buckets joined into at most `maximum`, of sizes as equal as possible."""
    points = sum(bucket.n for bucket in buckets)
    cut: list[Bucket] = []
    pending: list[Bucket] = []
    counted = 0
    for bucket in buckets:
        pending.append(bucket)
        counted += bucket.n
        if counted >= points * (len(cut) + 1) // maximum:
            cut.append(joined(pending))
            pending = []
    return cut


def _of_nonfinite_rows(rows: Sequence[Row]) -> Bucket:
    """The bucket of points that are not all finite, or whose sum is not."""
    finite = [row for row in rows if math.isfinite(row[2])]
    low = min(finite, key=_value, default=None)
    high = max(finite, key=_value, default=None)
    return Bucket(
        len(rows),
        len(finite),
        rows[0][0],
        rows[-1][0],
        rows[-1][1],
        rows[-1][2],
        sum(row[2] for row in finite),
        low and low[2],
        low and low[0],
        high and high[2],
        high and high[0],
    )


def _value(row: Row) -> float:
    return row[2]
