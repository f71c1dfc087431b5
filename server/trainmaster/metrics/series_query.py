"""One series, of a run or of a file: selected, reduced, and placed on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from trainer_runtime.core.protocol.figures import rounded
from trainmaster.answers.base import Number
from trainmaster.answers.metrics import MetricSeries
from trainmaster.metrics.downsample import as_number, summarised
from trainmaster.metrics.selection import Axis, Selection, moving_average, rates
from trainmaster.store.buckets import Bucket, Row, cut_rows, of_rows


class AnySeries(Protocol):
    """Points in order: those of a run rise in x, those of a file are in the order of the log."""

    def between(self, first: int | None, last: int | None) -> AnySeries:
        """The points from `first` to `last`, both included; None: no bound."""

    def since(self, t: float) -> AnySeries:
        """The points from the first one that was measured at or after `t`."""

    def first_x_since(self, t: float) -> int | None: ...

    def rows(self) -> list[Row]: ...

    def every(self) -> list[Bucket]:
        """Each point as a bucket; of a log too long for that, the finest buckets that are kept."""

    def averaged(self, weight: float) -> list[Row]:
        """The moving average in which the past has `weight`."""

    def cut(self, most: int) -> list[Bucket]:
        """At most `most` buckets of about as many points each."""

    def whole(self) -> Bucket | None: ...

    def first(self) -> Row | None: ...

    def until(self, x: int) -> Row | None:
        """The newest point at or before `x`."""

    def from_(self, x: int) -> Row | None:
        """The oldest point at or after `x`."""


class ListedSeries:
    """A series whose points are all in memory."""

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

    def every(self) -> list[Bucket]:
        return [of_rows([row]) for row in self._rows]

    def averaged(self, weight: float) -> list[Row]:
        return moving_average(self._rows, weight)

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
    """Places the points of one run or file on an axis: steps, tokens, or seconds since its start.

    `clock`: its series of tokens for the axis `tokens`, else one with steps and times.
    """

    def __init__(self, axis: Axis, clock: AnySeries) -> None:
        self.axis = axis
        self._clock = clock
        first = clock.first()
        self._begin_t = None if first is None else first[1]

    def place(self, x: int, t: float | None) -> float | None:
        """The place of a point; None if unknown."""
        if self.axis == "step":
            return x
        if self.axis == "time":
            return None if t is None or self._begin_t is None else t - self._begin_t
        before, after = self._clock.until(x), self._clock.from_(x)
        if before is None or after is None or before[0] == after[0]:
            nearest = before or after
            return None if nearest is None else nearest[2]
        share = (x - before[0]) / (after[0] - before[0])
        return before[2] + share * (after[2] - before[2])

    def end(self) -> float:
        """The place of the last point."""
        whole = self._clock.whole()
        return (whole and self.place(whole.last_x, whole.last_t)) or 0.0

    def first_beyond(self, place: float, series: AnySeries) -> int | None:
        """The first x of `series` beyond `place`; None where there is none."""
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
class SeriesOptions:
    """How a series is reported: in at most `max_points` points (None: all), placed on a ruler.

    `end`: where the longest of the compared series ends on the ruler; all are cut at the same
    places. `since_t`: only points from this time on. `averaged`: a value that stands for several
    points is their mean, else the last of them.
    """

    selection: Selection
    max_points: int | None
    ruler: Ruler | None = None
    end: float | None = None
    since_t: float | None = None
    averaged: bool = True


def query_series(series: AnySeries, options: SeriesOptions) -> MetricSeries:
    """The selected part of a series, reduced to the requested number of points."""
    selection = options.selection
    part = _selected(series, options)
    if selection.ema is not None:
        part = ListedSeries(part.averaged(selection.ema))
    first = part.first()
    if first is None:
        return summarised(None, [])
    buckets = _reduced(part, options)
    if selection.rate is not None:
        changes = rates(first, buckets, selection.rate)
        first, buckets = (changes or [first])[0], [of_rows([row]) for row in changes]
    answer = summarised(first, buckets, averaged=options.averaged)
    if selection.form is not None:
        answer = _with_rounded_values(answer)
    if options.ruler is not None:
        answer = answer.model_copy(update={"x": _places(buckets, options.ruler)})
    return answer


def _selected(series: AnySeries, options: SeriesOptions) -> AnySeries:
    """The points of a selection, before averages and rates."""
    selection = options.selection
    if selection.at is not None:
        row = series.until(selection.at)
        return ListedSeries([] if row is None else [row])
    if options.since_t is not None:
        series = series.since(options.since_t)
    if selection.from_step is not None or selection.to_step is not None:
        series = series.between(selection.from_step, selection.to_step)
    return series


def _reduced(series: AnySeries, options: SeriesOptions) -> list[Bucket]:
    """The buckets of the answer."""
    if options.max_points is None:
        return series.every()
    if options.ruler is not None and options.end is not None:
        return _aligned(series, options.ruler, options.end, options.max_points)
    return series.cut(options.max_points)


def _aligned(series: AnySeries, ruler: Ruler, end: float, most: int) -> list[Bucket]:
    """The series cut into `most` equal parts of the axis from 0 to `end`: the buckets that have
    points."""
    edges = [end * i / most for i in range(1, most + 1)]
    starts = [None, *(ruler.first_beyond(edge, series) for edge in edges[:-1]), None]
    buckets: list[Bucket] = []
    for edge, (first, after) in zip(edges, pairwise(starts), strict=True):
        if first is None and edge != edges[0]:
            break
        whole = series.between(first, None if after is None else after - 1).whole()
        if whole is not None:
            buckets.append(whole)
    return buckets


def _with_rounded_values(answer: MetricSeries) -> MetricSeries:
    """Averages and rates have no more than six significant digits."""
    summary = ("first", "last", "min", "max")
    return answer.model_copy(
        update={
            "values": [_rounded(value) for value in answer.values],
            **{name: _rounded(getattr(answer, name)) for name in summary},
        }
    )


def _rounded(value: Number | None) -> Number | None:
    return rounded(value) if isinstance(value, float) else value


def _places(buckets: Sequence[Bucket], ruler: Ruler) -> list[Number]:
    """Where each bucket is on the ruler: at its last point, which exists."""
    places = [ruler.place(bucket.last_x, bucket.last_t) for bucket in buckets]
    return [as_number(math.nan if place is None else rounded(place, 8)) for place in places]
