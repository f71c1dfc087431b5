"""Completes rows whose meaning depends on lines above them, before the clock takes them.

A heading names the epoch of the lines below it (Keras, Paddle), or begins and ends an evaluation; a
counter may stand on a line of its own above its loss. The mean of an epoch is not a point
of a curve that has losses within epochs. A batch that restarts with each epoch is a step only where
the log says how many an epoch has; other such rows are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from trainer_runtime.core.diagnosis.parse.columns import in_rows
from trainer_runtime.core.diagnosis.parse.counters import Counter
from trainer_runtime.core.diagnosis.parse.first_lines import (
    FirstLines,
    has_losses,
    may_restart,
)
from trainer_runtime.core.diagnosis.parse.names import held_out_key
from trainer_runtime.core.diagnosis.parse.points import (
    BATCHES,
    EPOCHS,
    UNNAMED,
    WITHIN_EPOCHS,
    Heading,
    StepFrom,
)
from trainer_runtime.core.diagnosis.parse.row_parts import rows_from, with_steps
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows

_NEVER = 2**62
# Clocks of lines that say `step` and no more; frameworks' own count through.
_OF_LOOPS = frozenset(("key_value", "counted"))
_WITHOUT_STEPS = (StepFrom.LAST, StepFrom.ABOVE)


class _Place(NamedTuple):
    """Row `i` of the rows with a number, on a line."""

    line: int
    number: int
    i: int


@dataclass(slots=True)
class _Parts:
    """Rows of a kind by what lines above say: with their steps and their total, of an evaluation,
    and with steps that begin again."""

    steps: list[tuple[int, float]] = field(default_factory=list)
    total: float = 0.0
    evaluated: list[int] = field(default_factory=list)
    restarted: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Context:
    """`epoch` of `epochs` (0: unknown), by the last heading; `first_epoch`: 0 or 1. `offset` is
    added to the steps below it, None until the first; `last`: the newest step as it is printed,
    `begun`: the first. `is_read`: the epoch's closing line was; `restarts`: the epoch's steps have
    no total, and begin again. `has_steps`, `has_losses`: lines above had a step; a loss within an
    epoch. `has_epochs`: a batch with its epoch. `has_gaps`: rows were left out."""

    epoch: float | None = None
    epochs: float = 0.0
    first_epoch: float = 1.0
    offset: float | None = None
    last: float = -1.0
    begun: float | None = None
    is_evaluating: bool = False
    is_read: bool = False
    restarts: bool | None = None
    has_steps: bool = False
    has_losses: bool = False
    has_epochs: bool = False
    has_gaps: bool = False
    first_within: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    counter: Counter = field(default_factory=Counter)
    first_lines: FirstLines = field(default_factory=FirstLines)

    def complete(self, all_rows: Sequence[Rows], block: Block) -> tuple[list[Rows], list[Rows]]:
        """The rows of a block, with what lines above say; and those left out because their step is
        not known."""
        self.first_lines.decide(all_rows, _NEVER)  # what is still open at the log's end
        depends = any(map(self._depends, all_rows))
        stepped, losses = self._first_lines(all_rows)
        all_rows, of_others = self._own_loop(self.first_lines.named(all_rows))
        below = self.counter.steps_below(all_rows, block)
        if not depends:
            self._note_last(all_rows)
            return all_rows, of_others
        found, left_out, scoped, closing = (list[Rows]() for _ in range(4))
        is_headed = self.epoch is not None or any(
            rows.like.heads is Heading.EPOCH for rows in all_rows
        )
        for rows in all_rows:
            like = rows.like
            if _is_scoped(rows, is_headed=is_headed):
                scoped.append(rows)
            elif like.source is StepFrom.ABOVE:
                found += _under_counters(rows, below)
            elif like.source is StepFrom.COUNT:
                found.append(self._counted(rows))
            elif like.clock == WITHIN_EPOCHS:
                self._part_first_epoch(rows, found, left_out)
            elif like.clock == UNNAMED:
                (found if self.first_lines.rises else left_out).append(rows)
            elif like.clock == EPOCHS:
                closing.append(rows)
            elif like.source is StepFrom.LAST and rows.keys:
                found += rows_from(rows, bisect_left(rows.index, stepped))
            elif like.heads is None:
                found.append(rows)
        found += self._scoped(scoped, left_out)
        found += self._closing(closing, losses, left_out)
        return found, left_out + of_others

    def _own_loop(self, all_rows: Sequence[Rows]) -> tuple[list[Rows], list[Rows]]:
        """The rows, without batches that have no epoch where others have one: those are of another
        loop, as an evaluation's."""
        begin = 0 if self.has_epochs else _NEVER
        for rows in all_rows:
            if rows.like.counts_epochs or rows.like.clock == WITHIN_EPOCHS:
                begin = min(begin, rows.index[0])
        self.has_epochs = begin < _NEVER
        found, of_others = list[Rows](), list[Rows]()
        for rows in all_rows:
            if rows.like.clock == BATCHES and begin <= rows.index[-1]:
                of_others += rows_from(rows, bisect_left(rows.index, begin))
                above = rows.before(begin)
                found += () if above is None else (above,)
            else:
                found.append(rows)
        return found, of_others

    def _closing(
        self, closing: Sequence[Rows], losses: int, left_out: list[Rows]
    ) -> Iterator[Rows]:
        """The rows of epochs alone. Below rows that were left out, no step is known to which they
        belong."""
        gap = 0 if self.has_gaps else min((rows.index[0] for rows in left_out), default=_NEVER)
        self.has_gaps = gap < _NEVER
        for rows in closing:
            left_out += rows_from(rows, bisect_left(rows.index, gap))
            above = rows.before(gap)
            if above is not None:
                yield from _without_means(above, losses) if "loss" in rows.keys else (above,)

    def waits(self, block: Block, all_rows: Sequence[Rows]) -> int | None:
        """The first line whose meaning lines below the block may decide; None if there is none."""
        return self.first_lines.decide(all_rows, block.count)

    def _depends(self, rows: Rows) -> bool:
        like = rows.like
        if like.source is StepFrom.LAST:
            return not self.has_steps
        if like.loss_as and like.clock != EPOCHS:
            return True
        if like.source is StepFrom.LINE and like.heads is None:
            is_below = self.epoch is not None or self.is_evaluating
            if may_restart(rows):
                return is_below or (like.clock == BATCHES and bool(self.first_lines.names_epochs))
            return like.clock in (EPOCHS, WITHIN_EPOCHS, UNNAMED) or (
                is_below and _may_begin_again(rows)
            )
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
            if has_losses(rows):
                losses = min(losses, rows.index[0])
        self.has_steps, self.has_losses = steps < _NEVER, losses < _NEVER
        return steps, losses

    def _note_last(self, all_rows: Sequence[Rows]) -> None:
        ends = [
            (rows.index[-1], rows.steps[-1])
            for rows in all_rows
            if may_restart(rows) and rows.steps
        ]
        self.last = max(ends)[1] if ends else self.last

    def _counted(self, rows: Rows) -> Rows:
        name = " ".join(rows.keys)
        begun = self.counts.get(name, 0)
        self.counts[name] = begun + len(rows.index)
        steps = [float(begun + i) for i in range(1, len(rows.index) + 1)]
        counted = with_steps(rows, range(len(steps)), steps)
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
                into.append(with_steps(rows, kept, in_rows(rows.steps or (), kept)))

    def _scoped(self, scoped: Sequence[Rows], left_out: list[Rows]) -> Iterator[Rows]:
        """The rows below headings: those of a training, and those of an evaluation."""
        parts = [_Parts() for _ in scoped]
        for place in sorted(_places(scoped)):
            rows, i, part = scoped[place.number], place.i, parts[place.number]
            if rows.like.heads is not None:
                self._enter(rows, i)
            elif self.is_evaluating:
                part.evaluated += [i] * _closes(rows, i)
            elif rows.like.source is StepFrom.EPOCH:
                if self.epoch is not None and not self.is_read:
                    self.is_read = True
                    part.steps.append((i, self.epoch))
                    part.total = self.epochs
            elif rows.lap_steps is not None:
                part.steps.append((i, self._step_of(rows, i)))
                part.total = self._total(rows, i)
            elif self._begins_again((rows.steps or ())[i]):
                part.restarted.append(i)
            else:
                part.steps.append((i, (rows.steps or ())[i]))
        for rows, part in zip(scoped, parts, strict=True):
            if part.restarted:
                left_out.append(
                    with_steps(rows, part.restarted, in_rows(rows.steps or (), part.restarted))
                )
            if part.steps:
                yield _completed(rows, part.steps, part.total)
            if part.evaluated:
                yield _evaluated(rows, part.evaluated)

    def _enter(self, heading: Rows, i: int) -> None:
        """Note what a heading says of the lines below it."""
        self.is_evaluating = heading.like.heads is Heading.EVALUATION
        if heading.like.heads is Heading.EPOCH and heading.steps and heading.lap_steps:
            self.epoch, self.epochs = heading.steps[i], heading.lap_steps[i]
            self.first_epoch = min(self.first_epoch, self.epoch)
            self.offset, self.is_read, self.restarts = None, False, None

    def _begins_again(self, step: float) -> bool:
        """Whether a step without a total is one of its epoch: the first below its heading is no
        higher than the log's first."""
        if self.begun is None:
            self.begun = step
        elif self.restarts is None:
            self.restarts = step <= self.begun and self.epoch != self.first_epoch
        return self.restarts is True

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
        counter, first_lines = Counter(**data["counter"]), FirstLines(**data["first_lines"])
        return cls(**{**data, "counter": counter, "first_lines": first_lines})


def _is_scoped(rows: Rows, *, is_headed: bool) -> bool:
    """Whether they are headings, or depend on them. `is_headed`: there was one of an epoch."""
    if rows.like.heads is not None:
        return rows.like.heads is not Heading.COUNTER
    is_within = may_restart(rows) or (is_headed and _may_begin_again(rows))
    return is_within or rows.like.source is StepFrom.EPOCH


def _may_begin_again(rows: Rows) -> bool:
    """Whether the steps of lines below the heading of an epoch may be those of the epoch."""
    return (
        rows.like.clock in _OF_LOOPS
        and rows.like.heads is None
        and rows.like.source is StepFrom.LINE
        and rows.lap_steps is None
        and rows.steps is not None
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
    made = with_steps(rows, [i for i, _ in steps], [step for _, step in steps])
    made.like = replace(made.like, facts=facts)
    return made


def _evaluated(rows: Rows, kept: Sequence[int]) -> Rows:
    """Rows of an evaluation, which belong to the last step of the training."""
    made = with_steps(rows, kept, ())
    made.steps, made.increasing = None, True
    made.like = replace(made.like, source=StepFrom.LAST, step=None, facts={})
    made.keys = tuple(map(held_out_key, made.keys))
    return made


def _under_counters(rows: Rows, below: Mapping[int, float]) -> Iterator[Rows]:
    kept = [i for i, line in enumerate(rows.index) if line in below]
    if kept:
        yield with_steps(rows, kept, [below[rows.index[i]] for i in kept])


def _without_means(rows: Rows, losses: int) -> Iterator[Rows]:
    """Rows of epochs alone; below losses within epochs without their own, which is a mean."""
    begin = bisect_left(rows.index, losses)
    if begin:
        yield with_steps(rows, range(begin), (rows.steps or ())[:begin])
    if begin < len(rows.index):
        below = next(rows_from(rows, begin))
        at = [k for k, key in enumerate(below.keys) if key != "loss"]
        below.keys = tuple([below.keys[k] for k in at])
        below.columns = [below.columns[k] for k in at]
        yield below
