"""What the first lines of a log leave open, until the lines below them decide.

A mean, or an estimate beside a validation, is the log's loss only if it has no other. `Batch 0/100`
may be batch 0 of 100, or batch 100 of epoch 0. A number in brackets is a step only if it rises.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainer_runtime.core.diagnosis.parse.points import (
    BATCHES,
    EPOCHS,
    UNNAMED,
    WITHIN_EPOCHS,
    StepFrom,
)
from trainer_runtime.core.diagnosis.parse.row_parts import rows_from, with_steps
from trainer_runtime.core.diagnosis.parse.rows import Rows

# A line waits for so many lines below it.
AHEAD = 16
_NEVER = 2**62
# What is called so is not the log's loss below others, but is not doubted above them.
TRAIN_LOSS = "train_loss"


@dataclass(slots=True)
class FirstLines:
    """What was decided; None: nothing yet.

    `stands_in`: losses by another name are the log's. `has_own`: it has had another one.
    `names_epochs`: the number before a slash is the epoch, the one behind it the batch. `rises`:
    numbers in brackets are steps.
    """

    stands_in: bool | None = None
    has_own: bool = False
    names_epochs: bool | None = None
    rises: bool | None = None

    def decide(self, all_rows: Sequence[Rows], lines: int) -> int | None:
        """Decide by a block of so many lines; the first line that has to wait for further ones."""
        open_lines = [
            self._decide_losses(all_rows, lines),
            self._decide_pairs(all_rows, lines),
            self._decide_unnamed(all_rows, lines),
        ]
        return min((line for line in open_lines if line is not None), default=None)

    def named(self, all_rows: Sequence[Rows]) -> list[Rows]:
        """The rows, with their losses by their own names where the log has others, and with epoch
        and batch where both are beside a slash."""
        own = 0 if self.has_own else _own_losses(all_rows)
        self.has_own = own < _NEVER
        if self.stands_in is False:
            own = 0
        found: list[Rows] = []
        for rows in all_rows:
            if rows.like.loss_as and rows.like.clock != EPOCHS and own <= rows.index[-1]:
                begin = bisect_left(rows.index, own)
                above = rows.before(rows.index[begin])
                found += () if above is None else (above,)
                found += map(_by_own_name, rows_from(rows, begin))
            elif self.names_epochs and rows.like.clock == BATCHES:
                found.append(_within_epochs(rows))
            else:
                found.append(rows)
        return found

    def _decide_losses(self, all_rows: Sequence[Rows], lines: int) -> int | None:
        if self.stands_in is not None or self.has_own:
            return None
        waiting = (rows for rows in all_rows if rows.like.loss_as not in ("", TRAIN_LOSS))
        first = min((rows.index[0] for rows in waiting), default=None)
        if first is None:
            return None
        if _own_losses(all_rows) <= first + AHEAD:
            self.stands_in = False
        elif lines > first + AHEAD:
            self.stands_in = True
        return first if self.stands_in is None else None

    def _decide_pairs(self, all_rows: Sequence[Rows], lines: int) -> int | None:
        if self.names_epochs is not None:
            return None
        two = _first_two(rows for rows in all_rows if rows.like.clock == BATCHES)
        if not two:
            return None
        if len(two) > 1 and two[1][0] <= two[0][0] + AHEAD:
            (_, step, total), (_, other_step, other_total) = two
            self.names_epochs = step == other_step and total < other_total
        elif lines > two[0][0] + AHEAD:
            self.names_epochs = False
        return two[0][0] if self.names_epochs is None else None

    def _decide_unnamed(self, all_rows: Sequence[Rows], lines: int) -> int | None:
        if self.rises is not None:
            return None
        two = _first_two(rows for rows in all_rows if rows.like.clock == UNNAMED)
        if not two:
            return None
        if len(two) > 1 and two[1][0] <= two[0][0] + AHEAD:
            self.rises = two[1][1] > two[0][1]
        elif lines > two[0][0] + AHEAD:
            self.rises = False
        return two[0][0] if self.rises is None else None


def _own_losses(all_rows: Sequence[Rows]) -> int:
    """The first line with a loss under its own name."""
    return min(
        (rows.index[0] for rows in all_rows if has_losses(rows) and not rows.like.loss_as),
        default=_NEVER,
    )


def has_losses(rows: Rows) -> bool:
    """Whether they are losses within epochs."""
    like = rows.like
    return "loss" in rows.keys and like.clock != EPOCHS and like.source is not StepFrom.ABOVE


def may_restart(rows: Rows) -> bool:
    """Whether the total behind the step may be that of an epoch."""
    return (
        rows.lap_steps is not None
        and rows.like.laps is None
        and rows.like.source is StepFrom.LINE
        and rows.like.heads is None
        and bool(rows.keys)
    )


def _first_two(all_rows: Iterable[Rows]) -> list[tuple[int, float, float]]:
    """The first two rows by line, each with its step and total."""
    return sorted(row for rows in all_rows for row in _two_of(rows))[:2]


def _two_of(rows: Rows) -> Iterator[tuple[int, float, float]]:
    for i in range(min(2, len(rows.index))):
        total = 0.0 if rows.lap_steps is None else rows.lap_steps[i]
        yield rows.index[i], (rows.steps or ())[i], total


def _by_own_name(rows: Rows) -> Rows:
    rows.keys = tuple([rows.like.loss_as if key == "loss" else key for key in rows.keys])
    return rows


def _within_epochs(rows: Rows) -> Rows:
    """Rows whose step is an epoch, and whose total is the batch."""
    made = with_steps(rows, range(len(rows.index)), rows.lap_steps or ())
    made.like = replace(made.like, clock=WITHIN_EPOCHS, facts={})
    made.keys = ("epoch", *made.keys)
    made.columns = [rows.steps or (), *made.columns]
    return made
