"""A series of any length as at most 64 means over equal spans, and its direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_MAX_BLOCKS = 64


@dataclass(slots=True)
class Trend:
    """Means of `per_block` points each; when 64 are full, pairs are merged and blocks double.

    `xs` and `means` are the whole blocks' mean positions and values.
    """

    per_block: int = 4
    count: int = 0
    x_sum: float = 0.0
    sum: float = 0.0
    xs: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)

    def add(self, x: float, value: float) -> bool:
        """Take in a point and return whether it completed a block."""
        self.count += 1
        self.x_sum += x
        self.sum += value
        if self.count < self.per_block:
            return False
        self.xs.append(self.x_sum / self.count)
        self.means.append(self.sum / self.count)
        self.count, self.x_sum, self.sum = 0, 0.0, 0.0
        if len(self.means) >= _MAX_BLOCKS:
            self.xs = _paired(self.xs)
            self.means = _paired(self.means)
            self.per_block *= 2
        return True

    @property
    def points(self) -> int:
        return len(self.means) * self.per_block + self.count


def mann_kendall_z(values: Sequence[float]) -> float:
    """The trend's z score, below 0 if it falls; ties count as neither (Mann 1945, Kendall 1975)."""
    n = len(values)
    score = sum(
        (later > earlier) - (later < earlier)
        for i, earlier in enumerate(values)
        for later in values[i + 1 :]
    )
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18) or 1.0
    return (score - math.copysign(1, score)) / spread if score else 0.0


def line_through(xs: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Least squares over at least three points: the slope and its standard error."""
    n = len(xs)
    x_mean, mean = sum(xs) / n, sum(values) / n
    spread = sum((x - x_mean) ** 2 for x in xs) or 1.0
    slope = sum((x - x_mean) * (v - mean) for x, v in zip(xs, values, strict=True)) / spread
    left = sum((v - mean - slope * (x - x_mean)) ** 2 for x, v in zip(xs, values, strict=True))
    return slope, math.sqrt(left / (n - 2) / spread)


def median_slope(xs: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs, which a single outlier can't move (Theil-Sen)."""
    slopes = sorted(
        (values[j] - values[i]) / (xs[j] - xs[i])
        for i in range(len(xs))
        for j in range(i + 1, len(xs))
        if xs[j] > xs[i]
    )
    return slopes[len(slopes) // 2] if slopes else 0.0


def _paired(values: list[float]) -> list[float]:
    return [0.5 * (values[i] + values[i + 1]) for i in range(0, len(values) - 1, 2)]
