"""The points of a block of a log, as far as they are wanted, in columns that a series takes as they
are."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from itertools import chain, pairwise

from trainer_runtime.core.diagnosis.parse import Batch
from trainer_runtime.core.records import dataclass
from trainmaster.metrics.thinned_series import falls_in
from trainmaster.metrics.wanted import Wanted

_FARTHEST_STEP = 2**53


@dataclass(frozen=True, slots=True)
class Column:
    """A key's points in one block, in the order of their lines. `times`: None where none is known.
    `falls`: how often a step is lower than the one before."""

    key: str
    steps: array[int]
    times: array[float] | None
    values: array[float]
    falls: int


@dataclass(frozen=True, slots=True)
class _Values:
    """One key's values in a batch, with the times of its rows."""

    batch: Batch
    times: array[float] | None
    values: Sequence[float]


def times_of(batches: Sequence[Batch], wanted: Wanted) -> list[array[float] | None]:
    """The times of each batch's rows, NaN where unknown; None where they are not wanted."""
    return [_times(batch) if wanted.times else None for batch in batches]


def columns_of(
    batches: Sequence[Batch], times: Sequence[array[float] | None], wanted: Wanted
) -> list[Column]:
    """The columns of one block's batches, which are of one rank."""
    by_key: dict[str, list[_Values]] = {}
    for batch, of_batch in zip(batches, times, strict=True):
        for key, values in zip(batch.keys, batch.columns, strict=True):
            if wanted.keys is None or key in wanted.keys:
                by_key.setdefault(key, []).append(_Values(batch, of_batch, values))
    made = [_column(key, parts) for key, parts in by_key.items()]
    return [column for column in made if column.steps]


def _times(batch: Batch) -> array[float]:
    times = [batch.time_of(row) for row in range(len(batch.steps))]
    return array("d", [math.nan if t is None else t for t in times])


def _column(key: str, parts: Sequence[_Values]) -> Column:
    steps: Sequence[float] = parts[0].batch.steps
    values: Sequence[float] = parts[0].values
    times: Sequence[float] | None = parts[0].times
    if len(parts) > 1:
        parts, order = _in_one_order(parts)
        steps = _joined(order, [part.batch.steps for part in parts])
        values = _joined(order, [part.values for part in parts])
        if times is not None:
            times = _joined(order, [part.times or () for part in parts])
    never_fall = sorted(steps) == steps
    ends = (steps[0], steps[-1]) if never_fall and steps else steps
    if ends and not (_is_possible(min(ends)) and _is_possible(max(ends))):
        kept = [i for i, step in enumerate(steps) if _is_possible(step)]
        steps, values = ([column[i] for i in kept] for column in (steps, values))
        times = times and [times[i] for i in kept]
    return Column(
        key,
        array("q", map(int, steps)),
        None if times is None else array("d", times),
        array("d", values),
        0 if never_fall else falls_in(steps),
    )


def _in_one_order(parts: Sequence[_Values]) -> tuple[Sequence[_Values], Sequence[int] | None]:
    """Values of several batches, and the order of all their rows; None: as they follow."""
    by_line = sorted(parts, key=lambda part: part.batch.lines[0])
    if all(above.batch.lines[-1] < below.batch.lines[0] for above, below in pairwise(by_line)):
        return by_line, None
    lines = list(chain.from_iterable(part.batch.lines for part in parts))
    return parts, sorted(range(len(lines)), key=lines.__getitem__)


def _joined(order: Sequence[int] | None, columns: Sequence[Sequence[float]]) -> list[float]:
    values = list(chain.from_iterable(columns))
    return values if order is None else list(map(values.__getitem__, order))


def _is_possible(step: float) -> bool:
    return abs(step) < _FARTHEST_STEP
