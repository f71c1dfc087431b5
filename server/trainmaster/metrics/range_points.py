"""The points of a part of a log, as far as they are wanted, in columns.

A series takes the columns as they are, and sending them to another process costs little.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from itertools import chain, groupby, pairwise

from trainer_runtime.core.diagnosis.parse import Batch, LogParser, Parsed
from trainer_runtime.core.diagnosis.parse.even_steps import EvenSteps
from trainer_runtime.core.diagnosis.parse.rank_state import Shift, shifted_step
from trainer_runtime.core.records import dataclass
from trainmaster.metrics.log_aggregates import RankRow, rows_of
from trainmaster.metrics.thinned_series import falls_in
from trainmaster.metrics.understood import Understood
from trainmaster.metrics.wanted import Wanted

_FARTHEST_STEP = 2**53
_MOST_FIRST = 1 << 17


@dataclass(frozen=True, slots=True)
class Column:
    """A key's points in one block, in the order of their lines. `times`: None where none is known.
    `falls`: how often a step is lower than the one before."""

    key: str
    steps: array[int]
    times: array[float] | None
    values: array[float]
    falls: int

    def shifted(self, shift: Shift) -> Column:
        steps = array("q", [int(shifted_step(step, shift)) for step in self.steps])
        return replace(self, steps=steps, falls=falls_in(steps))


@dataclass(frozen=True, slots=True)
class BlockPoints:
    """The points of one block: of `rank`, its lowest, and of all ranks where they are aggregated.

    `keys`: all that the rank has. `times`: the earliest and the latest; None where none is known.
    """

    rank: int
    keys: frozenset[str]
    columns: Sequence[Column]
    times: tuple[float, float] | None
    of_ranks: Mapping[str, Sequence[RankRow]]

    def shifted(self, shifts: Mapping[int, Shift]) -> BlockPoints:
        shift = shifts.get(self.rank, Shift())
        columns = [one.shifted(shift) for one in self.columns] if shift.steps else self.columns
        of_ranks = {
            key: [_shifted_row(row, shifts.get(row[3], Shift())) for row in rows]
            for key, rows in self.of_ranks.items()
        }
        return replace(self, columns=columns, of_ranks=of_ranks)


@dataclass(slots=True)
class RangePoints:
    """The points of some lines that follow each other, block by block."""

    ranks: set[int] = field(default_factory=set)
    blocks: list[BlockPoints] = field(default_factory=list)
    understood: Understood = field(default_factory=Understood)

    def shifted(self, shifts: Mapping[int, Shift]) -> RangePoints:
        """The same, with other steps and segments for some ranks."""
        if not any(shift.steps or shift.segments for shift in shifts.values()):
            return self
        understood = Understood()
        understood.add(self.understood, shifts)
        blocks = [block.shifted(shifts) for block in self.blocks]
        return RangePoints(self.ranks, blocks, understood)


class PointReader:
    """Reads the points of a log's lines. Of ranks above the lowest so far only those are taken that
    are aggregated: `bases` are the keys."""

    def __init__(self, parser: LogParser, wanted: Wanted, bases: Sequence[str]) -> None:
        self.parser = parser
        self._wanted = wanted
        self._bases = bases
        self._lowest: int | None = None
        self._points = RangePoints()

    def feed(self, data: bytes) -> None:
        """Read the lines that `data` completes."""
        self._take(self.parser.feed(data))

    def close(self) -> None:
        self._take(self.parser.close())

    def taken(self) -> RangePoints:
        """The points since the last call."""
        points, self._points = self._points, RangePoints()
        return points

    def _take(self, parsed: Parsed) -> None:
        self._points.understood.take(parsed)
        # Batches come by shape: lines of several shapes alternate within a block.
        for _, found in groupby(parsed.batches, key=_block):
            self._points.blocks.append(self._block_points(list(found)))

    def _block_points(self, batches: Sequence[Batch]) -> BlockPoints:
        ranks = {batch.rank for batch in batches}
        self._points.ranks |= ranks
        rank = min(ranks)
        self._lowest = rank if self._lowest is None else min(rank, self._lowest)
        own = [batch for batch in batches if batch.rank == self._lowest]
        times = [self._times(batch) for batch in own]
        known = [t for of_batch in times if of_batch for t in of_batch if not math.isnan(t)]
        return BlockPoints(
            rank,
            frozenset(key for batch in own for key in batch.keys),
            self._columns(own, times),
            (min(known), max(known)) if known else None,
            {base: rows for base in self._bases if (rows := rows_of(batches, base))},
        )

    def _columns(
        self, batches: Sequence[Batch], times: Sequence[array[float] | None]
    ) -> list[Column]:
        by_key: dict[str, list[_Values]] = {}
        for batch, of_batch in zip(batches, times, strict=True):
            for key, values in zip(batch.keys, batch.columns, strict=True):
                if self._wanted.keys is None or key in self._wanted.keys:
                    by_key.setdefault(key, []).append(_Values(batch, of_batch, values))
        made = [_column(key, found) for key, found in by_key.items()]
        return [column for column in made if column.steps]

    def _times(self, batch: Batch) -> array[float] | None:
        if not self._wanted.times:
            return None
        found = [batch.time_of(row) for row in range(len(batch.steps))]
        return array("d", [math.nan if t is None else t for t in found])


@dataclass(frozen=True, slots=True)
class _Values:
    """One key's values in a batch, with the times of its rows."""

    batch: Batch
    times: array[float] | None
    values: Sequence[float]


def _column(key: str, found: Sequence[_Values]) -> Column:
    """A key's points in one block, in the order of its lines."""
    steps: Sequence[float] = found[0].batch.steps
    values: Sequence[float] = found[0].values
    times: Sequence[float] | None = found[0].times
    if len(found) > 1:
        found, order = _in_one_order(found)
        steps = _joined(order, [one.batch.steps for one in found])
        values = _joined(order, [one.values for one in found])
        if times is not None:
            times = _joined(order, [one.times or () for one in found])
    never_fall = _never_fall(steps)
    ends = (steps[0], steps[-1]) if never_fall and steps else steps
    if ends and not (_is_possible(min(ends)) and _is_possible(max(ends))):
        kept = [i for i, step in enumerate(steps) if _is_possible(step)]
        steps, values = ([column[i] for i in kept] for column in (steps, values))
        times = times and [times[i] for i in kept]
    return Column(
        key,
        _whole(steps),
        None if times is None else array("d", times),
        array("d", values),
        0 if never_fall else falls_in(steps),
    )


def _whole(steps: Sequence[float]) -> array[int]:
    if isinstance(steps, array):
        from trainmaster.metrics.series_arrays import whole_numbers

        return whole_numbers(steps)
    if not isinstance(steps, EvenSteps):
        return array("q", map(int, steps))
    first, end, between = steps.numbers.start, steps.numbers.stop, steps.numbers.step
    return _first_steps()[first:end:between] if end <= _MOST_FIRST else array("q", steps.numbers)


@cache
def _first_steps() -> array[int]:
    """Most steps are among these, which are copied in a tenth of the time of making them."""
    return array("q", range(_MOST_FIRST))


def _in_one_order(found: Sequence[_Values]) -> tuple[Sequence[_Values], Sequence[int] | None]:
    """Values of several batches, and the order of all their rows; None: as they follow."""
    by_line = sorted(found, key=lambda one: one.batch.lines[0])
    if all(one.batch.lines[-1] < other.batch.lines[0] for one, other in pairwise(by_line)):
        return by_line, None
    lines = list(chain.from_iterable(one.batch.lines for one in found))
    return found, sorted(range(len(lines)), key=lines.__getitem__)


def _joined(order: Sequence[int] | None, columns: Sequence[Sequence[float]]) -> list[float]:
    values = list(chain.from_iterable(columns))
    return values if order is None else list(map(values.__getitem__, order))


def _shifted_row(row: RankRow, shift: Shift) -> RankRow:
    line, segment, step, rank, value = row
    return line, segment + shift.segments, shifted_step(step, shift), rank, value


def _block(batch: Batch) -> int:
    return id(batch.block)


def _never_fall(steps: Sequence[float]) -> bool:
    """Found in a tenth of the time of counting the falls."""
    if isinstance(steps, array):
        from trainmaster.metrics.series_arrays import never_fall

        return never_fall(steps)
    return isinstance(steps, EvenSteps) or sorted(steps) == steps


def _is_possible(step: float) -> bool:
    return abs(step) < _FARTHEST_STEP
