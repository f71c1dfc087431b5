"""Assigns steps and segments to rows, rank by rank, in the order of the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.diagnosis.parse.bulk_clock import settled_at_once
from trainer_runtime.core.diagnosis.parse.logged_steps import LOGGED_FACTS, BarsOf, LoggedSteps
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, StepFrom
from trainer_runtime.core.diagnosis.parse.rank_state import (
    ENDED,
    ENDED_AT,
    Rank,
    last_row_of,
    repeats,
)
from trainer_runtime.core.diagnosis.parse.rows import Rows

_OF_EPOCHS = frozenset((EPOCHS, ENDED, ENDED_AT))
MAX_RANKS = 16_384  # lines of further ranks are left out


class Clock:
    """Assigns steps to rows; its state is small and can be saved as JSON."""

    def __init__(self) -> None:
        self._ranks: dict[int, Rank] = {}
        self.facts: dict[str, float] = {}

    def settle(self, all_rows: Sequence[Rows], bars_of: BarsOf | None) -> None:
        """Accept the rows of one block, except repeats, and assign segment and step to each."""
        of_ranks: dict[int, list[Rows]] = defaultdict(list)
        for rows in sorted(all_rows, key=_first_line):
            if self._rank(rows.rank) is None:
                self.facts.update(rows.like.facts)
                continue
            of_ranks[rows.rank].append(rows)
            if rows.laps is not None:
                rows.begin_epochs(self._first_epoch(rows.like.clock, rows.laps))
        if self._depends_on_order(all_rows):
            self._settle_in_order(all_rows, bars_of)
            return
        for number, found in of_ranks.items():
            if not settled_at_once(self._ranks[number], found, self.facts, bars_of):
                self._settle_in_order(found, bars_of)
        for rows in sorted(all_rows, key=_last_line):
            self.facts.update(rows.like.facts)

    def _depends_on_order(self, all_rows: Sequence[Rows]) -> bool:
        """Whether what one row says changes how the next is read, even one of another rank."""
        if any(rows.like.clock == EPOCHS for rows in all_rows):
            return True
        logged = [rows for rows in all_rows if rows.like.source is StepFrom.LOG]
        if not logged:
            return False
        new = [name for rows in all_rows for name in rows.like.facts.items() - self.facts.items()]
        return len({rows.rank for rows in logged}) > 1 or any(
            name in LOGGED_FACTS for name, _ in new
        )

    def _settle_in_order(self, all_rows: Sequence[Rows], bars_of: BarsOf | None) -> None:
        largest = max(all_rows, key=lambda rows: len(rows.index))
        others = sorted(
            (rows.places[i], number, i)
            for number, rows in enumerate(all_rows)
            if rows is not largest
            for i in range(len(rows.index))
        )
        at = 0
        for line, number, i in others:
            before = bisect_left(largest.places, line, at)
            if before > at:
                self._take(largest, at, before, bars_of)
                at = before
            self._take(all_rows[number], i, i + 1, bars_of)
        self._take(largest, at, len(largest.index), bars_of)

    def _take(self, rows: Rows, first: int, end: int, bars_of: BarsOf | None) -> None:
        if first >= end:
            return
        self.facts.update(rows.like.facts)
        rank = self._rank(rows.rank)
        if rank is None:
            return
        if rows.like.events and end - first > 1:
            for i in range(first, end):
                self._take(rows, i, i + 1, bars_of)
            return
        if rows.like.events:
            steps = rows.steps[first:end] if rows.steps else [rank.step]
            rows.event_steps = [*(rows.event_steps or ()), *steps]
        if not rows.keys:
            if rows.steps and not rows.like.events:
                _begin(rank, rows.like.clock, rows.steps[first:end])
            return
        self._take_values(rank, rows, range(first, end), bars_of)

    def _take_values(self, rank: Rank, rows: Rows, part: range, bars_of: BarsOf | None) -> None:
        if rows.like.clock == EPOCHS and _has_steps(rank):
            _take_epochs(rank, rows, part)
        elif rows.like.source is StepFrom.LINE:
            _take_steps(rank, rows, part.start, part.stop)
        elif rows.like.source is StepFrom.LOG:
            self._take_logged(rank, rows, part, bars_of)
        else:
            for i in part:
                _take_beside(rank, rows, i)

    def _first_epoch(self, clock: str, epochs: Sequence[float]) -> float:
        """0 or 1; a log that begins later counts its epochs from 1, as most do."""
        first = min(self.facts.get(f"{clock}_epochs_from", 1.0), *epochs)
        self.facts[f"{clock}_epochs_from"] = first
        return first

    def _take_logged(
        self, rank: Rank, rows: Rows, part: Sequence[int], bars_of: BarsOf | None
    ) -> None:
        clock = rows.like.clock
        bars = bars_of([rows.index[i] for i in part]) if bars_of else [None] * len(part)
        for i, bar in zip(part, bars, strict=True):
            if repeats(rank.last_row(), rows, i, None):
                continue
            logged = LoggedSteps(self.facts, rank.steps.get(clock, rank.step), rank.step)
            step = logged.step_of(rows, i, bar)
            if step < rank.steps.get(clock, -1.0):
                rank.begin_segment()
            rows.accept(i, i + 1, rank.segment, [step])
            rank.step = rank.steps[clock] = step
            rank.newest, rank.seen = None, last_row_of(rows, i, step)
            rows.counted = rows.counted or logged.counted_losses

    def _rank(self, number: int) -> Rank | None:
        rank = self._ranks.get(number)
        if rank is None and len(self._ranks) < MAX_RANKS:
            rank = self._ranks[number] = Rank()
        return rank

    def to_dict(self) -> dict[str, Any]:
        ranks = {str(number): rank.to_dict() for number, rank in self._ranks.items()}
        return {"ranks": ranks, "facts": dict(self.facts)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Clock:
        clock = cls()
        clock.facts = dict(data["facts"])
        for number, state in data["ranks"].items():
            clock._ranks[int(number)] = Rank.from_dict(state)
        return clock


def _first_line(rows: Rows) -> float:
    return rows.places[0]


def _last_line(rows: Rows) -> float:
    return rows.places[-1]


def _begin(rank: Rank, clock: str, steps: Sequence[float]) -> None:
    """Lines that have a step alone: what follows belongs to it."""
    for step in steps:
        if step < rank.steps.get(clock, -1.0):
            rank.begin_segment()
        rank.step = rank.steps[clock] = step


def _take_beside(rank: Rank, rows: Rows, i: int) -> None:
    """A row without a step of its own: it belongs to the previous one."""
    step = rank.step
    if rows.like.source is StepFrom.MICRO and rows.micros is not None:
        step = rank.micro_step(rows.like.clock, rows.micros[i])
    if not repeats(rank.last_row(), rows, i, step):
        rows.accept(i, i + 1, rank.segment, [step])
        rank.newest, rank.seen = None, last_row_of(rows, i, step)


def _take_steps(rank: Rank, rows: Rows, first: int, end: int) -> None:
    steps, clock = rows.steps or [], rows.like.clock
    at = first
    while at < end:
        last = rank.steps.get(clock, -1.0)
        if steps[at] > last:
            until = rows.rises_until(at, end)
            rows.accept(at, until, rank.segment)
            at = until
        else:
            step = steps[at]
            if not (step == rank.step and repeats(rank.last_row(), rows, at, step)):
                if step < last:
                    rank.begin_segment()
                rows.accept(at, at + 1, rank.segment)
            at += 1
        rank.step = rank.steps[clock] = steps[at - 1]
        rank.newest = (rows, at - 1, rank.step)
    if rows.micros is not None:
        rank.micro[clock] = (rank.step, rows.micros[end - 1])


def _take_epochs(rank: Rank, rows: Rows, part: Sequence[int]) -> None:
    """Rows with an epoch alone, in a log that has steps."""
    for i in part:
        if _ends_epoch(rank, (rows.steps or ())[i]):
            _take_beside(rank, rows, i)


def _ends_epoch(rank: Rank, epoch: float) -> bool:
    """Whether a line that has an epoch alone belongs to the last step: it follows steps, or another
    line of the same epoch. Otherwise its step is not known, and never the epoch."""
    follows = rank.step > rank.steps.get(ENDED_AT, -1.0)
    is_same = rank.steps.get(ENDED) == epoch
    rank.steps[ENDED_AT], rank.steps[ENDED] = rank.step, epoch
    return follows or is_same


def _has_steps(rank: Rank) -> bool:
    """Whether there were lines with more than an epoch."""
    return not rank.steps.keys() <= _OF_EPOCHS
