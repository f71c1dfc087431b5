"""Some of the rows of a kind, with other steps or from one on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainer_runtime.core.diagnosis.parse.columns import column_in_rows, in_rows
from trainer_runtime.core.diagnosis.parse.points import StepFrom
from trainer_runtime.core.diagnosis.parse.rows import Rows, increases


def with_steps(rows: Rows, kept: Sequence[int], steps: Sequence[float]) -> Rows:
    """Some of the rows, as lines with these steps."""
    return Rows(
        replace(rows.like, source=StepFrom.LINE, step=0.0),
        rows.keys,
        [column_in_rows(column, kept) for column in rows.columns],
        in_rows(rows.index, kept),
        steps,
        None,
        rows.rank,
        increases(steps),
        own_places=None if rows.own_places is None else in_rows(rows.own_places, kept),
    )


def rows_from(rows: Rows, begin: int) -> Iterator[Rows]:
    """The rows from number `begin` on, if there are any."""
    if begin < len(rows.index):
        kept = range(begin, len(rows.index))
        made = with_steps(rows, kept, (rows.steps or ())[begin:])
        made.like = rows.like
        made.steps = made.steps if rows.steps is not None else None
        yield made
