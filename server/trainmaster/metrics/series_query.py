"""One series, of a run or of a file, told as it was asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from trainmaster.metrics.downsample import shown, told
from trainmaster.metrics.selection import Axis, Selection, moving_average, rates
from trainmaster.store.buckets import Bucket, Row, cut_rows, of_rows
from trainmaster.words.answers.metrics import MetricSeries
from trainmaster.words.answers.runs import Number


class AnySeries(Protocol):
    """Points in their order: those of a run rise in x, those of a file are as they were logged."""

    def between(self, first: int | None, last: int | None) -> AnySeries:
        """Those from `first` to `last`, both included; None: no bound."""

    def since(self, t: float) -> AnySeries:
        """Those from the first that was measured at or after `t`."""

    def first_x_since(self, t: float) -> int | None: ...

    def rows(self) -> list[Row]: ...

    def cut(self, most: int) -> list[Bucket]:
        """At most `most` buckets of about as many points each."""

    def whole(self) -> Bucket | None: ...

    def first(self) -> Row | None: ...

    def until(self, x: int) -> Row | None:
        """The newest point at or before `x`."""

    def from_(self, x: int) -> Row | None:
        """The oldest point at or after `x`."""


class ListedSeries:
    """Points that are all at hand."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def between(self, first: int | None, last: int | None) -> ListedSeries:
        low = -math.inf if first is None else first
        high = math.inf if last is None else last
        return ListedSeries([row for row in self._rows if low <= row[0] <= high])

    def since(self, t: float) -> ListedSeries:
        for at, row in enumerate(self._rows):
            if row[1] is not None and row[1] >= t:
                return ListedSeries(self._rows[at:])
        return ListedSeries([])

    def first_x_since(self, t: float) -> int | None:
        first = self.since(t).first()
        return None if first is None else first[0]

    def rows(self) -> list[Row]:
        return list(self._rows)

    def cut(self, most: int) -> list[Bucket]:
        return cut_rows(self._rows, most)

    def whole(self) -> Bucket | None:
        return of_rows(self._rows) if self._rows else None

    def first(self) -> Row | None:
        return self._rows[0] if self._rows else None

    def until(self, x: int) -> Row | None:
        newest = max((row[0] for row in self._rows if row[0] <= x), default=None)
        return next((row for row in reversed(self._rows) if row[0] == newest), None)

    def from_(self, x: int) -> Row | None:
        oldest = min((row[0] for row in self._rows if row[0] >= x), default=None)
        return next((row for row in reversed(self._rows) if row[0] == oldest), None)


class Ruler:
    """Where the points of one run, or file, stand on an axis: at their step, at so many tokens, or
    at so many seconds since its first point. `clock`: its series of tokens, or of losses."""

    def __init__(self, axis: Axis, clock: AnySeries) -> None:
        self.axis = axis
        self._clock = clock
        first = clock.first()
        self._begin_t = None if first is None else first[1]

    def place(self, x: int, t: float | None) -> float | None:
        """Where a point stands; None where that can't be known."""
        if self.axis == "step":
            return x
        if self.axis == "time":
            return None if t is None or self._begin_t is None else t - self._begin_t
        before, after = self._clock.until(x), self._clock.from_(x)
        if before is None or after is None or before[0] == after[0]:
            known = before or after
            return None if known is None else known[2]
        share = (x - before[0]) / (after[0] - before[0])
        return before[2] + share * (after[2] - before[2])

    def end(self) -> float:
        """Where the last point stands."""
        whole = self._clock.whole()
        return (whole and self.place(whole.last_x, whole.last_t)) or 0.0

    def first_beyond(self, place: float, series: AnySeries) -> int | None:
        """The first x of `series` that stands beyond `place`; None where none does."""
        if self.axis == "step":
            return math.floor(place) + 1
        if self.axis == "time":
            begin = self._begin_t or 0.0
            return series.first_x_since(math.nextafter(begin + place, math.inf))
        whole = self._clock.whole()
        if whole is None or whole.last <= place:
            return None
        low, high = whole.first_x - 1, whole.last_x
        while high - low > 1:
            middle = (low + high) // 2
            if (self.place(middle, None) or 0.0) > place:
                high = middle
            else:
                low = middle
        return high


@dataclass(frozen=True, slots=True)
class Told:
    """How a series is told: in at most `most` points (None: all), laid out on a ruler, side by side
    with others up to `end`. `since_t`: from there on."""

    selection: Selection
    most: int | None
    ruler: Ruler | None = None
    end: float | None = None
    since_t: float | None = None


def answer_of(series: AnySeries, how: Told) -> MetricSeries:
    """The chosen part of a series, reduced."""
    part, asked = _chosen(series, how), how.selection
    if asked.ema is not None:
        part = ListedSeries(moving_average(part.rows(), asked.ema))
    first = part.first()
    if first is None:
        return told(None, [])
    places: dict[int, float | None] = {}
    if how.ruler is not None and how.end is not None and how.most is not None:
        buckets, places = _side_by_side(part, how.ruler, how.end, how.most)
    elif how.most is None:
        buckets = [of_rows([row]) for row in part.rows()]
    else:
        buckets = part.cut(how.most)
    if asked.rate is not None:
        changes = rates(first, buckets, asked.rate)
        first, buckets = (changes or [first])[0], [of_rows([row]) for row in changes]
    answer = told(first, buckets)
    if asked.rate is not None or asked.ema is not None:
        answer = _without_noise(answer)
    if how.ruler is None:
        return answer
    ruler = how.ruler
    on_axis = [
        places[bucket.last_x]
        if bucket.last_x in places
        else ruler.place(bucket.last_x, bucket.last_t)
        for bucket in buckets
    ]
    return answer.model_copy(update={"x": [_rounded(place) for place in on_axis]})


def _chosen(series: AnySeries, how: Told) -> AnySeries:
    """The points that a selection leaves, before averages and rates."""
    asked = how.selection
    if asked.at is not None:
        row = series.until(asked.at)
        return ListedSeries([] if row is None else [row])
    if how.since_t is not None:
        series = series.since(how.since_t)
    if asked.from_step is not None or asked.to_step is not None:
        series = series.between(asked.from_step, asked.to_step)
    return series


def _side_by_side(
    series: AnySeries, ruler: Ruler, end: float, most: int
) -> tuple[list[Bucket], dict[int, float | None]]:
    """The series cut at `most` equal parts of the axis from 0 to `end`: the buckets that have any
    points, and by each one's last x, where its part ends."""
    edges = [end * i / most for i in range(1, most + 1)]
    starts = [None, *(ruler.first_beyond(edge, series) for edge in edges[:-1]), None]
    buckets: list[Bucket] = []
    places: dict[int, float | None] = {}
    for edge, (first, after) in zip(edges, pairwise(starts), strict=True):
        if first is None and edge != edges[0]:
            break
        whole = series.between(first, None if after is None else after - 1).whole()
        if whole is not None:
            buckets.append(whole)
            places[whole.last_x] = edge
    return buckets, places


def _without_noise(answer: MetricSeries) -> MetricSeries:
    """What was computed has no more digits than tell something."""
    columns = {"values": [_told(value) for value in answer.values]}
    single = ("first", "last", "min", "max")
    return answer.model_copy(
        update={**columns, **{name: _told(getattr(answer, name)) for name in single}}
    )


def _told(value: Number | None) -> Number | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _rounded(place: float | None) -> Number:
    return shown(math.nan if place is None else float(f"{place:.8g}"))
