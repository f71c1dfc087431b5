"""Aggregates over the ranks of a log, of the metrics whose aggregates were asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from trainer_runtime.core.diagnosis.parse import Batch
from trainer_runtime.core.diagnosis.rank_aggregates import RankAggregate, RankAggregates

_INFIX = "/ranks_"
_FARTHEST_STEP = 2**53

Points = dict[str, tuple[list[int], list[float]]]  # by key: steps and values
RankRow = tuple[int, int, float, int, float]  # line, segment, step, rank and value


class LogAggregates:
    """Takes a log block by block. `bases`: the metrics to aggregate, such as `loss` where
    `loss/ranks_max` was asked for."""

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = frozenset(key for key in keys if _INFIX in key)
        self.bases = sorted({key.rpartition(_INFIX)[0] for key in self._keys})
        self._ranks = RankAggregates()

    def take(self, rows: Mapping[str, Sequence[RankRow]]) -> Points:
        """The points that the rows of one block complete, given by metric."""
        return self._points(_added(self._ranks, rows))

    def finish(self) -> Points:
        """The points of the steps that are still open."""
        return self._points(self._ranks.finish())

    def _points(self, made: Iterable[RankAggregate]) -> Points:
        points: Points = defaultdict(lambda: ([], []))
        for aggregate in made:
            for key, value in aggregate.values().items():
                if key in self._keys:
                    points[key][0].append(aggregate.step)
                    points[key][1].append(value)
        return points


def aggregated(
    ranks: RankAggregates, batches: Sequence[Batch], bases: Iterable[str]
) -> list[RankAggregate]:
    """Add the batches of one block to `ranks`: the aggregates that they complete."""
    return _added(ranks, {base: rows_of(batches, base) for base in bases})


def rows_of(batches: Sequence[Batch], base: str) -> list[RankRow]:
    """Each point of a metric in one block, in no particular order."""
    return list(_rows(batches, base))


def _added(ranks: RankAggregates, rows: Mapping[str, Sequence[RankRow]]) -> list[RankAggregate]:
    made: list[RankAggregate] = []
    for base, rank_rows in rows.items():
        # In the order of lines: within a block the batches are sorted by rank.
        for _, segment, step, rank, value in sorted(rank_rows):
            if 0 <= step < _FARTHEST_STEP:
                made += ranks.add(base, segment, int(step), rank, value)
    return made


def _rows(batches: Sequence[Batch], base: str) -> Iterator[RankRow]:
    for batch in batches:
        if base in batch.keys:
            values = batch.columns[batch.keys.index(base)]
            rows = zip(batch.lines, batch.segments, batch.steps, values, strict=True)
            for line, segment, step, value in rows:
                yield line, segment, step, batch.rank, value
