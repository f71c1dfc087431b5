"""What many ranks report of a step as one aggregate: minimum, median, maximum, slowest rank.

Pure: the same values in the same order give the same aggregates, however they arrive in pieces.
Memory is bounded: 10 bytes for each value of a step that is still open.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

FEWEST_RANKS = 3  # of two, minimum and maximum are the values themselves
MOST_RANKS = 65_536
_MOST_OPEN = 128  # steps of a key: more than a rank's buffered output holds
_MOST_VALUES = 1 << 20  # in open steps of all keys
_REMEMBERED = 4  # closed steps
# Of these keys a rank with less is slower, of those that end in `_time_s` one with more.
_RATES = frozenset({"tokens_per_s", "samples_per_s", "mfu", "tflops"})
# By which of them ranks are compared: the first in this order that they report.
# A forward pass waits for no other rank.
PACE_KEYS = ("forward_time_s", "step_time_s", "tokens_per_s", "samples_per_s", "mfu", "tflops")


@dataclass(frozen=True, slots=True)
class RankAggregate:
    """One key of one step over `ranks` ranks; the figures are of the finite values.

    `slowest`: the rank with the worst value of a key that measures pace, else None. `behind`: how
    many times slower than the median it is.
    """

    key: str
    segment: int
    step: int
    t: float | None
    ranks: int
    least: float
    median: float
    most: float
    nonfinite: int
    slowest: int | None = None
    behind: float | None = None

    def values(self) -> dict[str, float]:
        """The metrics of the aggregate, by their keys."""
        values = {"min": self.least, "median": self.median, "max": self.most, "count": self.ranks}
        if self.nonfinite:
            values["nonfinite"] = self.nonfinite
        if self.slowest is not None:
            values["slowest"] = self.slowest
        return {f"{self.key}/ranks_{name}": float(value) for name, value in values.items()}


def described(aggregates: Sequence[RankAggregate]) -> dict[str, Any]:
    """The fields of the event that records the aggregates of one step."""
    fields: dict[str, Any] = {"ranks": max(aggregate.ranks for aggregate in aggregates)}
    if slowest := compared(aggregates):
        fields["pace"] = {"key": slowest.key, "slowest": slowest.slowest, "behind": slowest.behind}
    values = {key: value for aggregate in aggregates for key, value in aggregate.values().items()}
    return {**fields, "values": values}


def aggregate_ranks(key: str, step: int, values: Sequence[float]) -> RankAggregate:
    """The aggregate of what every rank of a training reported of a step, by rank."""
    return _aggregated(key, (0, step), None, [(value, rank) for rank, value in enumerate(values)])


def compared(aggregates: Sequence[RankAggregate]) -> RankAggregate | None:
    """The aggregate of a step by which its ranks' paces are compared."""
    of_pace = {aggregate.key: aggregate for aggregate in aggregates if aggregate.behind is not None}
    return next((of_pace[key] for key in PACE_KEYS if key in of_pace), None)


@dataclass(slots=True)
class _Open:
    """A step of a key whose ranks have not all reported."""

    seen: int = 0  # a bit per rank
    t: float | None = None
    ranks: array[int] = field(default_factory=lambda: array("H"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _Key:
    """`open`: by segment and step, in the order in which they began. `closed`: how many ranks the
    newest closed steps had, late ones included. `done`: each segment's newest closed step."""

    open: dict[tuple[int, int], _Open] = field(default_factory=dict)
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)


class RankAggregates:
    """Takes the values of all ranks, and gives out each step once.

    A step is closed when as many ranks have reported it as the newest closed ones; before any is
    closed, when two later steps are as far; and when 128 later ones have begun, as after a rank has
    ended. A value that comes later still is not taken. Steps of fewer than three ranks give no
    aggregate.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._values = 0

    def add(
        self, key: str, segment: int, step: int, rank: int, value: float, t: float | None = None
    ) -> list[RankAggregate]:
        """Take a rank's value; the aggregates that are complete with it."""
        if not 0 <= rank < MOST_RANKS:
            return []
        of_key = self._keys.setdefault(key, _Key())
        place = (segment, step)
        opened = of_key.open.get(place)
        if opened is None:
            if step <= of_key.done.get(segment, -1):
                if place in of_key.closed:
                    of_key.closed[place] += 1
                return []
            opened = of_key.open[place] = _Open()
        if opened.seen >> rank & 1:
            return []
        opened.seen |= 1 << rank
        opened.ranks.append(rank)
        opened.values.append(value)
        opened.t = t if t is not None else opened.t
        self._values += 1
        return self._closing(key, of_key, place)

    def finish(self) -> list[RankAggregate]:
        """The aggregates of all steps that are still open."""
        return [
            made
            for key, of_key in self._keys.items()
            for place in list(of_key.open)
            if (made := self._close(key, of_key, place))
        ]

    def _closing(self, key: str, of_key: _Key, place: tuple[int, int]) -> list[RankAggregate]:
        due = self._due(of_key, place)
        if due is None:
            return []
        made = [self._close(key, of_key, due)]
        expected = max(of_key.closed.values())
        made += [
            self._close(key, of_key, other)
            for other, opened in list(of_key.open.items())
            if len(opened.ranks) >= expected
        ]
        return [aggregate for aggregate in made if aggregate is not None]

    def _due(self, of_key: _Key, place: tuple[int, int]) -> tuple[int, int] | None:
        """The step to close now that `place` has another value."""
        if len(of_key.open) > _MOST_OPEN or self._values > _MOST_VALUES:
            return next(iter(of_key.open))
        count = len(of_key.open[place].ranks)
        if of_key.closed:
            return place if count >= max(of_key.closed.values()) else None
        return _overtaken(of_key.open) if count >= FEWEST_RANKS else None

    def _close(self, key: str, of_key: _Key, place: tuple[int, int]) -> RankAggregate | None:
        segment, step = place
        opened = of_key.open.pop(place)
        self._values -= len(opened.values)
        of_key.closed[place] = len(opened.ranks)
        of_key.done[segment] = max(step, of_key.done.get(segment, -1))
        if len(of_key.closed) > _REMEMBERED:
            del of_key.closed[next(iter(of_key.closed))]
        return _aggregate(key, place, opened)


def _overtaken(opened: dict[tuple[int, int], _Open]) -> tuple[int, int] | None:
    """The oldest step, where two later ones have as many ranks."""
    (oldest, first), *later = opened.items()
    needed = max(FEWEST_RANKS, len(first.ranks))
    as_far = sum(len(later_step.ranks) >= needed for _, later_step in later)
    return oldest if as_far >= 2 else None


def _aggregate(key: str, place: tuple[int, int], opened: _Open) -> RankAggregate | None:
    if len(opened.ranks) < FEWEST_RANKS:
        return None
    reported = list(zip(opened.values, opened.ranks, strict=True))
    return _aggregated(key, place, opened.t, reported)


def _aggregated(
    key: str, place: tuple[int, int], t: float | None, reported: Sequence[tuple[float, int]]
) -> RankAggregate:
    ranks = len(reported)
    finite = [(value, rank) for value, rank in reported if math.isfinite(value)]
    values = [value for value, _ in finite] or [math.nan]
    least, median, most = min(values), statistics.median(values), max(values)
    slowest, behind = _slowest(key, finite, median)
    return RankAggregate(
        key, *place, t, ranks, least, median, most, ranks - len(finite), slowest, behind
    )


def _slowest(
    key: str, finite: Sequence[tuple[float, int]], median: float
) -> tuple[int | None, float | None]:
    if not finite or median <= 0:
        return None, None
    if key.endswith("_time_s"):
        value, rank = max(finite, key=lambda pair: (pair[0], -pair[1]))
        return rank, value / median
    if key in _RATES:
        value, rank = min(finite)
        return rank, median / value if value > 0 else None
    return None, None
