"""Assigns steps and segments to rows, rank by rank, in the order of the log."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import field
from operator import eq
from typing import Any

from trainer_runtime.core.diagnosis.parse.points import EPOCHS, StepFrom
from trainer_runtime.core.diagnosis.parse.rows import Rows
from trainer_runtime.core.records import dataclass

MAX_RANKS = 16_384  # lines of further ranks are left out
# HF 5.x prints four digits; a line repeats a full one if they differ by at most twice that error.
_ROUNDING = 1e-3
_MIN_COMMON_KEYS = 3
_ENDED_AT = "epochs ended at"  # the step of the last line of an epoch
_RUN = 4  # rows that are worth accepting at once

# From a line to the step and the total of the progress bar below it; None without one.
BarOf = Callable[[int], "tuple[int, int] | None"]


@dataclass(slots=True)
class _LastRow:
    """The newest row of a rank."""

    clock: str
    step: float
    rounded: bool
    values: dict[str, float]


@dataclass(slots=True)
class _Rank:
    segment: int = 0
    step: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)
    micro: dict[str, tuple[float, float]] = field(default_factory=dict)
    seen: _LastRow | None = None
    newest: tuple[Rows, int] | None = None  # what `seen` is made of when it is needed

    def last_row(self) -> _LastRow | None:
        if self.newest is not None:
            rows, i = self.newest
            values = dict(zip(rows.keys, rows.row(i), strict=True))
            self.seen = _LastRow(rows.like.clock, self.step, rows.like.rounded, values)
            self.newest = None
        return self.seen


class Clock:
    """Assigns steps to rows; its state is small and can be saved as JSON."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Rank] = {}
        self.facts: dict[str, float] = {}

    def settle(self, all_rows: Sequence[Rows], bar_of: BarOf | None) -> None:
        """Accept the rows of one block, except repeats, and assign segment and step to each."""
        if not all_rows:
            return
        largest = max(all_rows, key=lambda rows: len(rows.index))
        others = sorted(
            (
                (rows.index[i], number, i)
                for number, rows in enumerate(all_rows)
                if rows is not largest
                for i in range(len(rows.index))
            ),
        )
        if others and self._take_all(largest, all_rows, others):
            return
        at = 0
        for line, number, i in others:
            before = bisect_left(largest.index, line, at)
            if before > at:
                self._take(largest, at, before, bar_of)
                at = before
            self._take(all_rows[number], i, i + 1, bar_of)
        self._take(largest, at, len(largest.index), bar_of)

    def _take_all(
        self, largest: Rows, all_rows: Sequence[Rows], others: Sequence[tuple[int, int, int]]
    ) -> bool:
        """Accept every row of a block whose steps never fall and whose rows can't repeat another.
        Returns whether they were accepted; row by row, the same would be."""
        clock = largest.like.clock
        rank = self._rank(largest.rank) if all(map(_is_plain, all_rows)) else None
        if rank is None or clock == EPOCHS or not _are_distinct(largest, all_rows):
            return False
        steps, index, at = largest.steps or [], largest.index, 0
        last = rank.steps.get(clock, -1.0)
        if not min(steps[0], (all_rows[others[0][1]].steps or [0.0])[0]) > last:
            return False
        for line, number, i in others:
            at = bisect_left(index, line, at)
            last = max(last, steps[at - 1]) if at else last
            step = (all_rows[number].steps or [])[i]
            if not last <= step or (at < len(steps) and not step <= steps[at]):
                return False
            last = step
        for rows in all_rows:
            rows.accept(0, len(rows.index), rank.segment)
        newest = max(all_rows, key=lambda rows: rows.index[-1])
        rank.step = rank.steps[clock] = max(last, steps[-1])
        rank.newest = (newest, len(newest.index) - 1)
        return True

    def _take(self, rows: Rows, first: int, end: int, bar_of: BarOf | None) -> None:
        if first >= end:
            return
        self.facts.update(rows.like.facts)
        rank = self._rank(rows.rank)
        if rank is None:
            return
        if rows.laps is not None:
            rows.begin_epochs(self._first_epoch(rows.like.clock, rows.laps))
        if rows.like.events:
            rows.event_step = rows.steps[first] if rows.steps else rank.step
        if not rows.keys:
            if rows.steps and not rows.like.events:
                self._begin(rank, rows.like.clock, rows.steps[end - 1])
            return
        if rows.like.source is StepFrom.LINE and not _ends_epoch(rank, rows.like.clock):
            self._take_steps(rank, rows, first, end)
        elif rows.like.source is StepFrom.LOG:
            self._take_logs(rank, rows, (first, end), bar_of)
        else:
            for i in range(first, end):
                self._take_beside(rank, rows, i)

    def _first_epoch(self, clock: str, epochs: Sequence[float]) -> float:
        """0 or 1; a log that begins later counts its epochs from 1, as most do."""
        first = min(self.facts.get(f"{clock}_epochs_from", 1.0), *epochs)
        self.facts[f"{clock}_epochs_from"] = first
        return first

    def _begin(self, rank: _Rank, clock: str, step: float) -> None:
        """A line that has a step alone: what follows belongs to it."""
        if step < rank.steps.get(clock, -1.0):
            rank.segment += 1
            rank.steps.clear()
        rank.step = rank.steps[clock] = step

    def _take_beside(self, rank: _Rank, rows: Rows, i: int) -> None:
        """A row without a step of its own: it belongs to the previous one."""
        step = self._by_micro(rank, rows, i) if rows.like.source is StepFrom.MICRO else rank.step
        if not _repeats(rank.last_row(), rows, i, step):
            rows.accept(i, i + 1, rank.segment, [step])
            rank.newest, rank.seen = None, _last_row_of(rows, i, step)

    def _take_steps(self, rank: _Rank, rows: Rows, first: int, end: int) -> None:
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
                if not (step == rank.step and _repeats(rank.last_row(), rows, at, step)):
                    if step < last:
                        rank.segment += 1
                        rank.steps.clear()
                    rows.accept(at, at + 1, rank.segment)
                at += 1
            rank.step = rank.steps[clock] = steps[at - 1]
            rank.newest = (rows, at - 1)
        if rows.micros is not None:
            rank.micro[clock] = (rank.step, rows.micros[end - 1])

    def _by_micro(self, rank: _Rank, rows: Rows, i: int) -> float:
        """The step of a count of micro-batches, by the last line with both numbers."""
        step, micro = rank.micro.get(rows.like.clock, (0.0, 0.0))
        if not micro or not step or rows.micros is None:
            return rank.step
        return float(round(rows.micros[i] * step / micro))

    def _take_logs(
        self, rank: _Rank, rows: Rows, part: tuple[int, int], bar_of: BarOf | None
    ) -> None:
        first, end = part
        bars = [None if bar_of is None else bar_of(rows.index[at]) for at in range(first, end)]
        for at in range(first, end):
            self._take_logged(rank, rows, at, bars[at - first])
            if at == first and self._take_run(rank, rows, (at + 1, end), bars[1:]):
                return

    def _take_run(
        self,
        rank: _Rank,
        rows: Rows,
        part: tuple[int, int],
        bars: Sequence[tuple[int, int] | None],
    ) -> bool:
        """Accept all rows at once if none can repeat another and their steps follow from the bars,
        or without any from the epoch or the count. Returns whether they were accepted."""
        at, end = part
        if end - at < _RUN or "loss" not in rows.keys:
            return False
        if not _all_differ([list(column[at - 1 : end]) for column in rows.columns]):
            return False
        clock, last = rows.like.clock, rank.steps.get(rows.like.clock, 0.0)
        steps = self._steps_of_run(rows, part, bars, last)
        if steps is None or steps[0] < last or steps != sorted(steps) or steps[-1] >= 2**53:
            return False
        rows.accept(at, end, rank.segment, steps)
        rank.step = rank.steps[clock] = steps[-1]
        rank.newest = (rows, end - 1)
        return True

    def _steps_of_run(
        self,
        rows: Rows,
        part: tuple[int, int],
        bars: Sequence[tuple[int, int] | None],
        last: float,
    ) -> list[float] | None:
        """The steps of rows of a training, as `_logged_step` gives them; None where they are to be
        found one by one."""
        at, end = part
        total = self.facts.get("bar_total")
        if any(bars):
            found = [float(bar[0]) for bar in bars if bar is not None and bar[1] == total]
            return found if len(found) == end - at else None
        epochs = rows.columns[rows.keys.index("epoch")][at:end] if "epoch" in rows.keys else ()
        per_epoch = self._steps_per_epoch()
        if per_epoch and epochs:
            if not all(map(math.isfinite, epochs)):
                return None
            return [float(round(epoch * per_epoch)) for epoch in epochs]
        return [last + 1.0 + i for i in range(end - at)]

    def _take_logged(self, rank: _Rank, rows: Rows, i: int, bar: tuple[int, int] | None) -> None:
        clock = rows.like.clock
        if _repeats(rank.last_row(), rows, i, None):
            return
        values = dict(zip(rows.keys, rows.row(i), strict=True))
        step = self._logged_step(rank, values, clock, bar)
        if step < rank.steps.get(clock, -1.0):
            rank.segment += 1
            rank.steps.clear()
        rows.accept(i, i + 1, rank.segment, [step])
        rank.step = rank.steps[clock] = step
        rank.newest, rank.seen = None, _LastRow(clock, step, rows.like.rounded, values)

    def _logged_step(
        self, rank: _Rank, values: dict[str, float], clock: str, bar: tuple[int, int] | None
    ) -> float:
        """The step of the bar below the line, else from the epoch, else the count of logs."""
        trains = "loss" in values
        if bar is not None and self.facts.get("bar_total", bar[1]) == bar[1]:
            if trains:
                self.facts["bar_total"] = float(bar[1])
            return float(bar[0])
        per_epoch = self._steps_per_epoch()
        epoch = values.get("epoch", math.nan)
        if per_epoch and math.isfinite(epoch) and 0 <= epoch * per_epoch < 2**53:
            return float(round(epoch * per_epoch))
        return rank.steps.get(clock, rank.step) + 1.0 if trains else rank.step

    def _steps_per_epoch(self) -> float | None:
        facts = self.facts
        if "steps_per_epoch" in facts:
            return facts["steps_per_epoch"]
        if "examples" in facts and facts.get("batch_samples"):
            return float(math.ceil(facts["examples"] / facts["batch_samples"]))
        return None

    def _rank(self, number: int) -> _Rank | None:
        if number not in self._ranks and len(self._ranks) >= MAX_RANKS:
            return None
        return self._ranks.setdefault(number, _Rank())

    def to_dict(self) -> dict[str, Any]:
        ranks = {}
        for number, rank in self._ranks.items():
            seen = rank.last_row()
            ranks[str(number)] = {
                "segment": rank.segment,
                "step": rank.step,
                "steps": rank.steps,
                "micro": rank.micro,
                "seen": None
                if seen is None
                else [seen.clock, seen.step, seen.rounded, _named(seen.values)],
            }
        return {"ranks": ranks, "facts": self.facts}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Clock:
        clock = cls()
        clock.facts = dict(data["facts"])
        for number, state in data["ranks"].items():
            micro = {name: (step, count) for name, (step, count) in state["micro"].items()}
            rank = _Rank(state["segment"], state["step"], dict(state["steps"]), micro)
            if state["seen"] is not None:
                name, step, rounded, values = state["seen"]
                floats = {key: float(value) for key, value in values.items()}
                rank.seen = _LastRow(name, step, rounded, floats)
            clock._ranks[int(number)] = rank
        return clock


def _is_plain(rows: Rows) -> bool:
    """Whether its rows are nothing but values at rising steps of their own."""
    like = rows.like
    is_at_steps = like.source is StepFrom.LINE and rows.increasing and rows.steps is not None
    aside = like.facts or like.events or rows.laps is not None or rows.micros is not None
    return is_at_steps and bool(rows.keys) and not aside


def _are_distinct(one: Rows, all_rows: Sequence[Rows]) -> bool:
    """Whether they are of one clock and rank, and no two of them have the same keys."""
    of_one = all((rows.like.clock, rows.rank) == (one.like.clock, one.rank) for rows in all_rows)
    return of_one and len({frozenset(rows.keys) for rows in all_rows}) == len(all_rows)


def _ends_epoch(rank: _Rank, clock: str) -> bool:
    """Whether a line that has an epoch alone follows steps, to the last of which it belongs."""
    if clock != EPOCHS or not rank.steps.keys() - {EPOCHS, _ENDED_AT}:
        return False
    follows = rank.step > rank.steps.get(_ENDED_AT, -1.0)
    rank.steps[_ENDED_AT] = rank.step
    return follows


def _named(values: dict[str, float]) -> dict[str, str]:
    """Floats as text, since JSON has no NaN and no infinity."""
    return {key: repr(value) for key, value in values.items()}


def _last_row_of(rows: Rows, i: int, step: float) -> _LastRow:
    values = dict(zip(rows.keys, rows.row(i), strict=True))
    return _LastRow(rows.like.clock, step, rows.like.rounded, values)


def _repeats(seen: _LastRow | None, rows: Rows, i: int, step: float | None) -> bool:
    """Whether the row repeats the last one of its rank, rounded or in full."""
    if seen is None or seen.clock != rows.like.clock or step not in (None, seen.step):
        return False
    if step is not None or seen.rounded == rows.like.rounded:
        return len(seen.values) == len(rows.keys) and all(
            key in seen.values and _same(seen.values[key], value)
            for key, value in zip(rows.keys, rows.row(i), strict=True)
        )
    values = dict(zip(rows.keys, rows.row(i), strict=True))
    common = seen.values.keys() & values.keys()
    if len(common) < _MIN_COMMON_KEYS or len(common) < min(len(seen.values), len(values)):
        return False
    return all(_close(seen.values[key], values[key]) for key in common)


def _all_differ(columns: list[Sequence[float]]) -> bool:
    """Whether each row differs from the one before it. False also where values that are NaN, which
    equal one another here, would have to be compared one by one."""
    numbers = [column for column in columns if not math.isnan(sum(column))]
    if any(not any(map(eq, column, column[1:])) for column in numbers):
        return True
    if len(numbers) < len(columns):
        return False
    rows = list(zip(*columns, strict=True))
    return not any(map(eq, rows, rows[1:]))


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _close(one: float, other: float) -> bool:
    return _same(one, other) or math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=5e-5)
