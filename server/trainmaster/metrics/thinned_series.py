"""A series of any length in bounded memory: its points, or aggregates over neighbouring ones."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import islice
from operator import lt

from trainmaster.metrics.selection import moving_average
from trainmaster.store.buckets import (
    Bucket,
    Row,
    cut_buckets,
    cut_rows,
    joined,
    of_columns,
    of_rows,
)

# Points of one series that are kept as they are, and of all series of a file together.
MOST_POINTS = 1 << 17
_MOST_OF_ALL = 1 << 20
_FEWEST_POINTS = 1 << 11
_FIRST_BLOCK = 64
_FARTHEST_STEP = 2**53


def most_points(series: int) -> int:
    """How many points each of so many series may keep."""
    return max(_FEWEST_POINTS, min(MOST_POINTS, _MOST_OF_ALL // max(1, series)))


class ThinnedSeries:
    """Points in the order in which they were added.

    Up to `most` of them are kept exactly. Of longer series only buckets over equally many
    neighbours are kept, `most / 64` to `most / 32` of them: counts, sums and extremes stay exact,
    and parts of the series begin and end at the edge of a bucket.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._steps = array("q")
        self._times = array("d")  # NaN where unknown
        self._values = array("d")
        self._blocks: list[Bucket] = []  # of the points before those in the columns
        self._block = _FIRST_BLOCK
        self._first: Row | None = None
        self._top: Row | None = None  # the last point of the highest step, once there are blocks
        self.restarts = 0
        self._newest = -_FARTHEST_STEP

    def add(
        self,
        steps: array[int],
        times: array[float],
        values: array[float],
        falls: int | None = None,
    ) -> None:
        """Add points: their steps, Unix seconds (NaN where unknown) and values. `falls`: how often
        a step is lower than the one before; None: that is counted here."""
        if not steps:
            return
        self.restarts += steps[0] < self._newest
        self.restarts += falls_in(steps) if falls is None else falls
        self._newest = steps[-1]
        self._steps.extend(steps)
        self._times.extend(times)
        self._values.extend(values)
        if self._first is None:
            self._first = self._row(0)
        if len(self._steps) > self._most:
            self._thin()

    @property
    def is_thinned(self) -> bool:
        """Whether only buckets are left."""
        return bool(self._blocks)

    def between(self, first: int | None, last: int | None) -> ThinnedSeries:
        low = -math.inf if first is None else first
        high = math.inf if last is None else last
        kept = [i for i, step in enumerate(self._steps) if low <= step <= high]
        return self._of(
            [block for block in self._blocks if low <= block.last_x <= high], self._chosen(kept)
        )

    def since(self, t: float) -> ThinnedSeries:
        for at, block in enumerate(self._blocks):
            if block.last_t is not None and block.last_t >= t:
                return self._of(self._blocks[at:], self)
        for at, time in enumerate(self._times):
            if time >= t:
                return self._of([], self._chosen(range(at, len(self._times))))
        return ThinnedSeries(self._most)

    def first_x_since(self, t: float) -> int | None:
        first = self.since(t).first()
        return None if first is None else first[0]

    def rows(self) -> list[Row]:
        """The points; the mean of each bucket, at its last point, where only these are left."""
        thinned = [(block.last_x, block.last_t, block.mean) for block in self._blocks]
        return thinned + [self._row(i) for i in range(len(self._steps))]

    def extremes(self) -> list[Row]:
        """The points; the lowest and the highest of each bucket where only these are left."""
        rows: list[Row] = []
        for block in self._blocks:
            pair = ((block.low_x, block.low), (block.high_x, block.high))
            ends = sorted((x, v) for x, v in pair if x is not None and v is not None)
            rows += [(x, block.last_t, value) for x, value in dict.fromkeys(ends)]
        return rows + [self._row(i) for i in range(len(self._steps))]

    def every(self) -> list[Bucket]:
        """Each point as a bucket; the buckets where only these are left."""
        return self._all_blocks() if self._blocks else [of_rows([row]) for row in self.rows()]

    def averaged(self, weight: float) -> list[Row]:
        """The moving average of the points in which the past has `weight`; of buckets, of their
        means."""
        return moving_average(self.rows(), weight**self._block if self._blocks else weight)

    def cut(self, most: int) -> list[Bucket]:
        if not self._blocks:
            return cut_rows(self.rows(), most)
        return cut_buckets(self._all_blocks(), most)

    def whole(self) -> Bucket | None:
        if not self._blocks:
            return of_rows(self.rows()) if self._steps else None
        return joined(self._all_blocks())

    def first(self) -> Row | None:
        return self._first

    def until(self, x: int) -> Row | None:
        rows = [*self._last_rows(), *([] if self._top is None else [self._top])]
        newest = max((row[0] for row in rows if row[0] <= x), default=None)
        return next((row for row in reversed(rows) if row[0] == newest), None)

    def from_(self, x: int) -> Row | None:
        rows = self._last_rows()
        oldest = min((row[0] for row in rows if row[0] >= x), default=None)
        return next((row for row in reversed(rows) if row[0] == oldest), None)

    def times(self) -> list[float]:
        """The known times, of buckets those of their last points."""
        block_times = [block.last_t for block in self._blocks if block.last_t is not None]
        return block_times + [t for t in self._times if not math.isnan(t)]

    def _row(self, i: int) -> Row:
        t = self._times[i]
        return self._steps[i], None if math.isnan(t) else t, self._values[i]

    def _last_rows(self) -> list[Row]:
        """The points; the last one of each bucket where only these are left."""
        thinned = [(block.last_x, block.last_t, block.last) for block in self._blocks]
        return thinned + [self._row(i) for i in range(len(self._steps))]

    def _all_blocks(self) -> list[Bucket]:
        return [*self._blocks, *self._bucketed(len(self._steps))]

    def _bucketed(self, count: int) -> list[Bucket]:
        """The first `count` points in buckets."""
        steps, times, values = self._steps, self._times, self._values
        parts = [slice(begin, begin + self._block) for begin in range(0, count, self._block)]
        return [of_columns(steps[part], times[part], values[part]) for part in parts]

    def _thin(self) -> None:
        """Put the points into buckets, and pairs of buckets together where they are too many."""
        self._keep_top()
        whole = len(self._steps) // self._block * self._block
        self._blocks += self._bucketed(whole)
        for column in (self._steps, self._times, self._values):
            del column[:whole]
        while len(self._blocks) > self._most // 32:
            odd = self._blocks[len(self._blocks) // 2 * 2 :]
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=False)
            self._blocks = [joined(pair) for pair in pairs] + odd
            self._block *= 2

    def _keep_top(self) -> None:
        highest = max(self._steps)
        at = len(self._steps) - 1 - self._steps[::-1].index(highest)
        if self._top is None or self._steps[at] >= self._top[0]:
            self._top = self._row(at)

    def _chosen(self, index: Sequence[int]) -> ThinnedSeries:
        chosen = ThinnedSeries(self._most)
        chosen._steps = array("q", [self._steps[i] for i in index])
        chosen._times = array("d", [self._times[i] for i in index])
        chosen._values = array("d", [self._values[i] for i in index])
        chosen._first = chosen._row(0) if index else None
        return chosen

    def _of(self, blocks: Sequence[Bucket], rest: ThinnedSeries) -> ThinnedSeries:
        """A part of this series: some of its blocks, and the points of `rest` behind them."""
        part = ThinnedSeries(self._most)
        part._steps, part._times, part._values = rest._steps, rest._times, rest._values
        part._blocks, part._block, part._first = list(blocks), self._block, rest._first
        if blocks:
            begin = blocks[0]
            whole = self._blocks and blocks[0] is self._blocks[0]
            part._first = self._first if whole else (begin.first_x, begin.last_t, begin.mean)
        return part


def falls_in(steps: Sequence[float]) -> int:
    """How often a step is lower than the one before."""
    return sum(map(lt, islice(steps, 1, None), steps))
