"""The newest values of a series, kept sorted for cheap medians, MADs and quantiles."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

# Makes the MAD of a normal distribution its standard deviation (Iglewicz and Hoaglin 1993).
_MAD_TO_SIGMA = 0.6745
_MAX_TIMES = 1e30


@dataclass(slots=True)
class Window:
    """At most `size` finite values. `add` costs about a microsecond, whatever the size."""

    size: int = 64
    values: deque[float] = field(default_factory=deque)
    ranked: list[float] = field(default_factory=list, metadata={"derived": True})

    def __len__(self) -> int:
        return len(self.ranked)

    def add(self, value: float) -> None:
        values, ranked = self.values, self.ranked
        if len(ranked) >= self.size:
            del ranked[bisect_left(ranked, values.popleft())]
        values.append(value)
        insort(ranked, value)

    def clear(self) -> None:
        self.values.clear()
        self.ranked.clear()

    @property
    def median(self) -> float:
        """The median; the window must not be empty."""
        return median_of(self.ranked)

    def quantile(self, share: float) -> float:
        """The value below which about `share` (0 to 1) of them lie."""
        return self.ranked[min(len(self.ranked) - 1, int(share * len(self.ranked)))]

    @property
    def mad(self) -> float:
        """The median of the absolute differences from the median."""
        median = self.median
        return median_of(sorted([abs(value - median) for value in self.ranked]))

    def after_restore(self) -> None:
        self.ranked = sorted(self.values)


def mad_z(value: float, median: float, mad: float) -> float:
    """How many robust standard deviations `value` lies above the median; infinite at a MAD of 0."""
    if mad > 0:
        return _MAD_TO_SIGMA * (value - median) / mad
    return float("inf") if value > median else 0.0


def times(value: float, base: float) -> float:
    """How many times `base` (above 0) `value` is; finite whatever they are."""
    return min(value / base, _MAX_TIMES)


def mean_of(values: Collection[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def deviation_of(values: Collection[float]) -> float:
    """The standard deviation of at least two values."""
    mean = mean_of(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def median_of(ranked: list[float]) -> float:
    """The median of values in ascending order, at least one."""
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else 0.5 * (ranked[half - 1] + ranked[half])
