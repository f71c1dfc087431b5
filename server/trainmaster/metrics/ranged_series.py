"""A series of a log of which the selected steps are also kept apart."""

from __future__ import annotations

from trainmaster.metrics.selection import Selection
from trainmaster.metrics.series_query import AnySeries
from trainmaster.store.buckets import Bucket, Row


class RangedSeries:
    """`whole`, but for the part that `selection` names: that is `part`, in which a long series is
    kept more finely."""

    def __init__(self, whole: AnySeries, part: AnySeries, selection: Selection) -> None:
        self._whole = whole
        self._part = part
        self._selection = selection

    def between(self, first: int | None, last: int | None) -> AnySeries:
        if (first, last) == (self._selection.from_step, self._selection.to_step):
            return self._part
        return self._whole.between(first, last)

    def since(self, t: float) -> AnySeries:
        return self._whole.since(t)

    def first_x_since(self, t: float) -> int | None:
        return self._whole.first_x_since(t)

    def rows(self) -> list[Row]:
        return self._whole.rows()

    def every(self) -> list[Bucket]:
        return self._whole.every()

    def averaged(self, weight: float) -> list[Row]:
        return self._whole.averaged(weight)

    def cut(self, most: int) -> list[Bucket]:
        return self._whole.cut(most)

    def whole(self) -> Bucket | None:
        return self._whole.whole()

    def first(self) -> Row | None:
        return self._whole.first()

    def until(self, x: int) -> Row | None:
        return (self._part if x == self._selection.at else self._whole).until(x)

    def from_(self, x: int) -> Row | None:
        return self._whole.from_(x)
