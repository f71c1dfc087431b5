"""Completes rows whose meaning depends on lines above them, before the clock takes them.

A heading names the epoch of the lines below it (Keras, Paddle), or begins and ends an evaluation; a
counter may stand on a line of its own, directly above its loss. The mean of an epoch is not a point
of a curve that has losses within epochs. A batch that restarts with each epoch is a step only where
the log says how many an epoch has; other such rows are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from trainer_runtime.core.diagnosis.parse.columns import column_in_rows, in_rows
from trainer_runtime.core.diagnosis.parse.names import held_out_key
from trainer_runtime.core.diagnosis.parse.points import EPOCHS, WITHIN_EPOCHS, Heading, StepFrom
from trainer_runtime.core.diagnosis.parse.rows import Rows, increases

_NEVER = 2**62
_WITHOUT_STEPS = (StepFrom.LAST, StepFrom.ABOVE)


class _Place(NamedTuple):
    """Row `i` of the rows with a number, on a line."""

    line: int
    number: int
    i: int


@dataclass(slots=True)
class Context:
    """`epoch` of `epochs` (0: unknown), by the last heading; `first_epoch`: 0 or 1. `offset` is
    added to the steps below it, None until the first; `last`: the newest step as it is printed.
    `is_read`: the epoch's closing line was. `counter`: named by the line before the block.
    `has_steps`, `has_losses`: lines above had a step; a loss within an epoch."""

    epoch: float | None = None
    epochs: float = 0.0
    first_epoch: float = 1.0
    offset: float | None = None
    last: float = -1.0
    is_evaluating: bool = False
    is_read: bool = False
    counter: float | None = None
    has_steps: bool = False
    has_losses: bool = False
    first_within: float | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def complete(self, all_rows: Sequence[Rows], lines: int) -> tuple[list[Rows], list[Rows]]:
        """The rows of a block of so many lines, with what lines above say; and those left out
        because their batch is known, but not their step."""
        depends = any(map(self._depends, all_rows))
        stepped, losses = self._first_lines(all_rows)
        if not depends:
            self._note_last(all_rows)
            self.counter = None
            return list(all_rows), []
        found, left_out, scoped = list[Rows](), list[Rows](), list[Rows]()
        counters = self._counters(all_rows)
        for rows in all_rows:
            like = rows.like
            if like.heads in (Heading.EPOCH, Heading.EVALUATION, Heading.TRAINING):
                scoped.append(rows)
            elif like.source is StepFrom.ABOVE:
                found += _under_counters(rows, counters)
            elif like.source is StepFrom.COUNT:
                found.append(self._counted(rows))
            elif like.clock == WITHIN_EPOCHS:
                self._part_first_epoch(rows, found, left_out)
            elif like.clock == EPOCHS and "loss" in rows.keys:
                found += _without_means(rows, losses)
            elif like.source is StepFrom.LAST and rows.keys:
                found += _from(rows, bisect_left(rows.index, stepped))
            elif like.source is StepFrom.EPOCH or _may_restart(rows):
                scoped.append(rows)
            elif like.heads is None:
                found.append(rows)
        found += self._scoped(scoped)
        self.counter = counters.get(lines - 1)
        return found, left_out

    def _depends(self, rows: Rows) -> bool:
        like = rows.like
        if like.source is StepFrom.LAST:
            return not self.has_steps
        if like.source is StepFrom.LINE and like.heads is None:
            is_below = self.epoch is not None or self.is_evaluating
            return like.clock in (EPOCHS, WITHIN_EPOCHS) or (is_below and _may_restart(rows))
        return like.source not in (StepFrom.LOG, StepFrom.MICRO)

    def _first_lines(self, all_rows: Sequence[Rows]) -> tuple[int, int]:
        """From which line on there were steps, and losses within epochs."""
        steps = 0 if self.has_steps else _NEVER
        losses = 0 if self.has_losses else _NEVER
        for rows in all_rows if steps or losses else ():
            if rows.like.heads is not None or rows.like.source in _WITHOUT_STEPS:
                continue
            if rows.keys or rows.steps:
                steps = min(steps, rows.index[0])
            if "loss" in rows.keys and rows.like.clock != EPOCHS:
                losses = min(losses, rows.index[0])
        self.has_steps, self.has_losses = steps < _NEVER, losses < _NEVER
        return steps, losses

    def _note_last(self, all_rows: Sequence[Rows]) -> None:
        ends = [
            (rows.index[-1], rows.steps[-1])
            for rows in all_rows
            if _may_restart(rows) and rows.steps
        ]
        self.last = max(ends)[1] if ends else self.last

    def _counters(self, all_rows: Sequence[Rows]) -> dict[int, float]:
        """The steps that lines of their own name, by line."""
        counters = {} if self.counter is None else {-1: self.counter}
        for rows in all_rows:
            if rows.like.heads is Heading.COUNTER:
                counters.update(zip(rows.index, rows.steps or (), strict=True))
        return counters

    def _counted(self, rows: Rows) -> Rows:
        name = " ".join(rows.keys)
        begun = self.counts.get(name, 0)
        self.counts[name] = begun + len(rows.index)
        steps = [float(begun + i) for i in range(1, len(rows.index) + 1)]
        counted = _part(rows, range(len(steps)), steps)
        counted.counted = True
        return counted

    def _part_first_epoch(self, rows: Rows, found: list[Rows], left_out: list[Rows]) -> None:
        """A batch of the first epoch is the step; that of a later one is not known."""
        epochs = list(rows.columns[rows.keys.index("epoch")])
        if self.first_within is None:
            self.first_within = epochs[0]
        first = self.first_within if self.first_within in (0.0, 1.0) else -1.0
        for kept, into in (
            ([i for i, epoch in enumerate(epochs) if epoch == first], found),
            ([i for i, epoch in enumerate(epochs) if epoch != first], left_out),
        ):
            if kept:
                into.append(_part(rows, kept, in_rows(rows.steps or (), kept)))

    def _scoped(self, scoped: Sequence[Rows]) -> Iterator[Rows]:
        """The rows below headings: those of a training, and those of an evaluation."""
        steps: list[list[tuple[int, float]]] = [[] for _ in scoped]
        evaluated: list[list[tuple[int, float]]] = [[] for _ in scoped]
        totals: dict[int, float] = {}
        for place in sorted(_places(scoped)):
            rows, i = scoped[place.number], place.i
            if rows.like.heads is not None:
                self._enter(rows, i)
            elif self.is_evaluating:
                if _closes(rows, i):
                    evaluated[place.number].append((i, 0.0))
            elif rows.like.source is StepFrom.EPOCH:
                if self.epoch is not None and not self.is_read:
                    self.is_read = True
                    steps[place.number].append((i, self.epoch))
                    totals[place.number] = self.epochs
            else:
                steps[place.number].append((i, self._step_of(rows, i)))
                totals[place.number] = self._total(rows, i)
        for number, rows in enumerate(scoped):
            if steps[number]:
                yield _completed(rows, steps[number], totals[number])
            if evaluated[number]:
                yield _evaluated(rows, [i for i, _ in evaluated[number]])

    def _enter(self, heading: Rows, i: int) -> None:
        """Note what a heading says of the lines below it."""
        self.is_evaluating = heading.like.heads is Heading.EVALUATION
        if heading.like.heads is Heading.EPOCH and heading.steps and heading.lap_steps:
            self.epoch, self.epochs = heading.steps[i], heading.lap_steps[i]
            self.first_epoch = min(self.first_epoch, self.epoch)
            self.offset, self.is_read = None, False

    def _step_of(self, rows: Rows, i: int) -> float:
        """The step of a row in an epoch. The first row below a heading shows whether the numbers
        restart there: they fall, or are lower than at the end of the epochs before it."""
        step, total = (rows.steps or ())[i], (rows.lap_steps or ())[i]
        if self.epoch is not None and self.offset is None:
            passed = self.epoch - self.first_epoch
            is_within = self.epochs > 0 and step * self.epochs <= total * passed
            restarts = passed > 0 and (step <= self.last or is_within)
            self.offset = passed * total if restarts else 0.0
        self.last = step
        return step + (self.offset or 0.0)

    def _total(self, rows: Rows, i: int) -> float:
        """The steps of the training; 0 where the first epoch leaves open what its total is."""
        total = (rows.lap_steps or ())[i]
        if self.epoch is not None and not self.epochs:
            return 0.0
        if self.epoch is None or self.epochs <= 1:
            return total
        if self.offset:
            return total * self.epochs
        return 0.0 if self.epoch == self.first_epoch else total

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Context:
        return cls(**data)


def _may_restart(rows: Rows) -> bool:
    """Whether the total behind the step may be that of an epoch."""
    return (
        rows.lap_steps is not None
        and rows.like.laps is None
        and rows.like.source is StepFrom.LINE
        and rows.like.heads is None
        and bool(rows.keys)
    )


def _places(scoped: Sequence[Rows]) -> Iterator[_Place]:
    """Where rows are, in any order; of those that count by epochs, the lines that close one."""
    for number, rows in enumerate(scoped):
        closing = rows.like.source is StepFrom.EPOCH
        for i, line in enumerate(rows.index):
            if not closing or _closes(rows, i):
                yield _Place(line, number, i)


def _closes(rows: Rows, i: int) -> bool:
    """Whether a row is the last of its epoch. Keras prints that line twice: first after no time,
    without the validation."""
    if rows.steps is None or rows.lap_steps is None:
        return True
    if rows.steps[i] != rows.lap_steps[i]:
        return False
    return rows.micros is None or rows.micros[i] > 0 or "val_loss" in rows.keys


def _completed(rows: Rows, steps: Sequence[tuple[int, float]], total: float) -> Rows:
    facts = {name: value for name, value in rows.like.facts.items() if name != "total_steps"}
    if total:
        facts["total_steps"] = total
    made = _part(rows, [i for i, _ in steps], [step for _, step in steps])
    made.like = replace(made.like, facts=facts)
    return made


def _evaluated(rows: Rows, kept: Sequence[int]) -> Rows:
    """Rows of an evaluation, which belong to the last step of the training."""
    made = _part(rows, kept, ())
    made.steps, made.increasing = None, True
    made.like = replace(made.like, source=StepFrom.LAST, step=None, facts={})
    made.keys = tuple(map(held_out_key, made.keys))
    return made


def _under_counters(rows: Rows, counters: Mapping[int, float]) -> Iterator[Rows]:
    kept = [i for i, line in enumerate(rows.index) if line - 1 in counters]
    if kept:
        yield _part(rows, kept, [counters[rows.index[i] - 1] for i in kept])


def _without_means(rows: Rows, losses: int) -> Iterator[Rows]:
    """Rows of epochs alone; below losses within epochs without their own, which is a mean."""
    begin = bisect_left(rows.index, losses)
    if begin:
        yield _part(rows, range(begin), (rows.steps or ())[:begin])
    if begin < len(rows.index):
        below = next(_from(rows, begin))
        at = [k for k, key in enumerate(below.keys) if key != "loss"]
        below.keys = tuple([below.keys[k] for k in at])
        below.columns = [below.columns[k] for k in at]
        yield below


def _from(rows: Rows, begin: int) -> Iterator[Rows]:
    """The rows from number `begin` on, if there are any."""
    if begin < len(rows.index):
        kept = range(begin, len(rows.index))
        made = _part(rows, kept, (rows.steps or ())[begin:])
        made.like = rows.like
        made.steps = made.steps if rows.steps is not None else None
        yield made


def _part(rows: Rows, kept: Sequence[int], steps: Sequence[float]) -> Rows:
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
