"""A series of any length as at most 64 values, folded point by point, and as a line of bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from trainer_runtime.core.protocol.figures import rounded

MOST_VALUES = 64
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Curve:
    """Means of `per_value` points each; when 64 are full, pairs are merged and stretches double.

    `xs` holds each stretch's last x, `values` its mean over what is finite, None where nothing is.
    """

    per_value: int = 1
    count: int = 0
    finite: int = 0
    sum: float = 0.0
    xs: list[float] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)

    def add(self, x: float, value: float) -> None:
        """Take in a point beyond the last one."""
        self.count += 1
        if math.isfinite(value):
            self.finite += 1
            self.sum += value
        if self.count < self.per_value:
            return
        self.xs.append(x)
        self.values.append(rounded(self.sum / self.finite) if self.finite else None)
        self.count = self.finite = 0
        self.sum = 0.0
        if len(self.values) >= MOST_VALUES:
            self.xs = self.xs[1::2]
            self.values = merged(self.values, len(self.xs))
            self.per_value *= 2

    def until(self, last_x: float) -> list[tuple[float, float | None]]:
        """(x, value) as far as `last_x`."""
        return [point for point in zip(self.xs, self.values, strict=True) if point[0] <= last_x]

    def to_dict(self) -> dict[str, Any]:
        """For immediate serialization: the lists are not copies."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> Curve:
        """The curve that `to_dict` described; an empty one for None."""
        return cls(**data) if data else cls()


_FIELDS = tuple(item.name for item in fields(Curve))


def merged(values: Sequence[float | None], count: int) -> list[float | None]:
    """`values` in at most `count` means over equally many neighbours."""
    if len(values) <= count:
        return list(values)
    parts = (
        values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count)
    )
    return [_mean([value for value in part if value is not None]) for part in parts]


def sparkline(values: Sequence[object]) -> str:
    """The values as bars between their least and their greatest; `!` for what is not finite."""
    finite = [item for item in values if isinstance(item, (int, float)) and math.isfinite(item)]
    if not finite:
        return "!" * len(values)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_bar(item, low, span) for item in values)


def _bar(item: object, low: float, span: float) -> str:
    if not isinstance(item, (int, float)) or not math.isfinite(item):
        return "!"
    share = (item - low) / span if span > 0 else 0.0
    return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
