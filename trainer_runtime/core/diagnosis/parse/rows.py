"""Rows of one kind of line in a block of the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress, count, islice
from operator import add, ge, le, lt

from trainer_runtime.core.diagnosis.parse.columns import (
    TokenColumn,
    column_in_rows,
    in_rows,
)
from trainer_runtime.core.diagnosis.parse.points import Batch, Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.quantities import time_of
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.tokens import Tokens

_LARGEST_STEP = 2.0**53
_FEW = 64  # lines are few if a block has more than so many times as many
_MANY = 256  # rows of columns that are better compared as text


class Block:
    """Whole lines of the stream; line list and offsets are computed on demand."""

    def __init__(self, data: bytes, offset: int) -> None:
        """`data` ends with a newline and has no carriage returns; `offset` is its first byte."""
        self.data = data
        self.offset = offset
        self._lines: list[bytes] | None = None
        self._count: int | None = None
        self._starts: list[int] | None = None  # of lines, without the line feeds before them
        self._mark = (0, offset)  # a line and where it begins

    @property
    def lines(self) -> list[bytes]:
        if self._lines is None:
            self._lines = self.data.split(b"\n")
            self._lines.pop()
        return self._lines

    @property
    def count(self) -> int:
        """The number of lines."""
        if self._count is None:
            self._count = self.data.count(b"\n")
        return self._count

    def line(self, number: int) -> bytes:
        return self.lines[number]

    def lines_at(self, numbers: Sequence[int]) -> list[bytes]:
        return list(map(self.lines.__getitem__, numbers))

    def forget_lines(self) -> None:
        """Free memory; they are cut again where they are used."""
        self._lines = None

    def start_of(self, line: int) -> int:
        """The byte of the stream where the line begins."""
        if self._starts is None:
            marked, start = self._mark
            if line >= marked:  # mostly requested in order
                start += len(b"\n".join(self.lines[marked:line])) + (line > marked)
                self._mark = line, start
                return start
            self._starts = self._all_starts()
        return self._starts[line] + line

    def _all_starts(self) -> list[int]:
        return list(accumulate(map(len, self.lines), initial=self.offset))

    def starts_of(self, lines: Sequence[int]) -> list[int]:
        """The bytes of the stream where lines begin."""
        if self._starts is None and len(lines) * _FEW < self.count:
            return list(map(self.start_of, lines))
        self._starts = self._starts or self._all_starts()
        return list(map(add, map(self._starts.__getitem__, lines), lines))

    def last(self, count: int) -> bytes:
        """The last `count` lines."""
        start = len(self.data) - 1
        for _ in range(count):
            start = self.data.rfind(b"\n", 0, max(start, 0))
        return self.data[start + 1 :]


@dataclass(slots=True)
class Accepted:
    """Rows in order, each with its segment; `steps` where they were inferred."""

    rows: Sequence[int]
    segments: list[int]
    steps: list[float] | None


@dataclass(slots=True, eq=False)
class Rows:
    """Rows read as `like`, by column; `index[i]` is the line of row i in its block."""

    like: Reading
    keys: tuple[str, ...]
    columns: list[Sequence[float]]
    index: Sequence[int]
    steps: Sequence[float] | None
    micros: Sequence[float] | None
    rank: int
    increasing: bool
    accepted: list[Accepted] = field(default_factory=list)
    event_steps: Sequence[float] | None = None  # of each row's events
    # Where its rows are in the block, if another row is on the same line.
    own_places: Sequence[float] | None = None
    breaks: list[int] | None = None  # rows whose step does not rise, once they are needed
    laps: Sequence[float] | None = None  # epochs as they are printed, until the first is known
    lap_steps: Sequence[float] | None = None
    counted: bool = False  # see `points.Batch`

    @property
    def places(self) -> Sequence[float]:
        """Where each row is in the block: its line, or a little below it."""
        return self.index if self.own_places is None else self.own_places

    def row(self, i: int) -> tuple[float, ...]:
        return tuple([column[i] for column in self.columns])

    def rises_until(self, row: int, end: int) -> int:
        """The end of the rows from `row` to before `end` each of which has a higher step than the
        one before it."""
        if self.increasing:
            return end
        if self.breaks is None:
            steps = self.steps or []
            falls = map(ge, steps, islice(steps, 1, None))
            self.breaks = list(compress(count(1), falls))
        at = bisect_left(self.breaks, row + 1)
        return min(end, self.breaks[at]) if at < len(self.breaks) else end

    def before(self, line: int) -> Rows | None:
        """The rows of the lines above `line`; None if there are none."""
        kept = bisect_left(self.index, line)
        if kept == len(self.index):
            return self
        if not kept:
            return None
        return replace(
            self,
            columns=[column[:kept] for column in self.columns],
            index=self.index[:kept],
            steps=self.steps and self.steps[:kept],
            breaks=None,
            micros=self.micros and self.micros[:kept],
            laps=self.laps and self.laps[:kept],
            lap_steps=self.lap_steps and self.lap_steps[:kept],
        )

    def begin_epochs(self, first: float) -> None:
        """Count the epochs from number `first` on: so many passes fewer came before each step."""
        if first and self.steps is not None and self.lap_steps is not None:
            passed = zip(self.steps, self.lap_steps, strict=True)
            self.steps = [step - first * each for step, each in passed]
        self.laps = None

    def accept(self, first: int, end: int, segment: int, steps: list[float] | None = None) -> None:
        """Accept rows `first` to before `end` in one segment; `steps` where they were inferred."""
        last = self.accepted[-1] if self.accepted else None
        if last is None or (last.steps is None) != (steps is None):
            last = Accepted([], [], None if steps is None else [])
            self.accepted.append(last)
        last.rows += range(first, end)  # type: ignore[operator]
        last.segments += [segment] * (end - first)
        if last.steps is not None and steps is not None:
            last.steps += steps

    def accept_all(
        self, rows: Sequence[int], segments: list[int], steps: list[float] | None
    ) -> None:
        """Accept rows, in ascending order, each in a segment; `steps` where they were inferred."""
        if rows:
            self.accepted.append(Accepted(rows, segments, steps))

    def batches(self, block: Block, kept: Sequence[bool]) -> Iterator[Batch]:
        keys = tuple(key for key, keep in zip(self.keys, kept, strict=True) if keep)
        columns = [column for column, keep in zip(self.columns, kept, strict=True) if keep]
        for part in self.accepted if keys else ():
            steps = in_rows(self.steps or [], part.rows) if part.steps is None else part.steps
            index = in_rows(self.index, part.rows)
            yield Batch(
                keys,
                [column_in_rows(column, part.rows) for column in columns],
                steps,
                self.rank,
                part.segments,
                part.steps is not None,
                block,
                index,
                lambda row, index=index: block.start_of(index[row]),  # type: ignore[misc]
                lambda row, index=index: time_of(block.lines[index[row]]),  # type: ignore[misc]
                self.counted,
            )


class Gathered:
    """The rows of lines that were read one by one: those that differ in numbers alone together."""

    def __init__(self) -> None:
        self._of_kind: dict[object, tuple[list[Reading], list[int]]] = {}
        self._of_reading: dict[int, tuple[list[Reading], list[int]]] = {}
        self._glued: list[Rows] = []

    def add(self, readings: Sequence[Reading], line: int) -> None:
        """Add the readings of a line; lines come in order."""
        if len(readings) > 1:
            for number, reading in enumerate(readings):
                rows = _rows_of([reading], [line])
                rows.own_places = [line + number / len(readings)]
                self._glued.append(rows)
            return
        for reading in readings:
            known = self._of_reading.get(id(reading))
            if known is None:
                known = self._of_kind.setdefault(_kind_of(reading), ([], []))
                self._of_reading[id(reading)] = known
            known[0].append(reading)
            known[1].append(line)

    def rows(self) -> list[Rows]:
        return [*(_rows_of(*found) for found in self._of_kind.values()), *self._glued]


def _kind_of(reading: Reading) -> object:
    """What is the same in all rows of a kind."""
    return (
        reading.clock,
        reading.source,
        reading.rank,
        reading.rounded,
        reading.taught,
        reading.loss_as,
        reading.counts_epochs,
        reading.heads,
        (reading.step is None, reading.micro is None, reading.laps is None),
        reading.lap_steps is None,
        tuple([key for key, _ in reading.values]),
        tuple(reading.events),
        tuple(reading.facts.items()),
    )


def _rows_of(readings: Sequence[Reading], lines: Sequence[int]) -> Rows:
    """The rows of readings of one kind, each of a line."""
    like = readings[0]
    steps = None if like.step is None else [_step_of(reading) for reading in readings]
    made = Rows(
        like,
        tuple([key for key, _ in like.values]),
        [list(column) for column in zip(*[_numbers(one) for one in readings], strict=True)],
        lines,
        steps,
        None if like.micro is None else [reading.micro or 0.0 for reading in readings],
        like.rank or 0,
        steps is None or increases(steps),
    )
    if like.counts_epochs and like.laps is not None:
        made.laps = [reading.laps or 0.0 for reading in readings]
    if like.lap_steps is not None:
        made.lap_steps = [reading.lap_steps or 0.0 for reading in readings]
        if like.laps is not None:
            made.lap_steps = _lap_steps([one.step or 0.0 for one in readings], made.lap_steps)
    return made


def _lap_steps(steps: Sequence[float], lap_steps: Sequence[float]) -> Sequence[float]:
    """How many steps an epoch adds: none where steps beyond its own are printed, which count
    through."""
    if all(map(le, steps, lap_steps)):
        return lap_steps
    return [0.0 if step > each else each for step, each in zip(steps, lap_steps, strict=True)]


def _step_of(reading: Reading) -> float:
    step, each = reading.step or 0.0, reading.lap_steps or 0.0
    return step if step > each else step + (reading.laps or 0.0) * each


def _numbers(reading: Reading) -> list[float]:
    return [value for _, value in reading.values]


def rows_of_template(
    template: Template,
    tokens: Tokens,
    index: Sequence[int],
    keys: Collection[str] | None,
) -> tuple[list[Rows], Sequence[int]]:
    """The rows of lines of one shape, by rank, and the lines that must be read one by one.

    `tokens`: of the lines `index`. `keys`: the columns that are converted at once, None: all.
    """
    all_lines = index
    odd = template.odd_rows(tokens)
    if odd is None:
        return [], all_lines
    singly = [index[row] for row in odd]
    if odd:
        tokens = tokens.without(odd)
        others = set(odd)
        index = [line for row, line in enumerate(index) if row not in others]
    count = len(index)
    if not count:
        return [], all_lines
    marks = {name: column.of(tokens) for name, column in template.marks.items() if name != "step"}
    ranks = marks.get("rank", [float(template.like.rank or 0)])
    is_of_several = ranks.count(ranks[0]) < len(ranks)
    is_inferred = template.like.source is not StepFrom.LINE
    if is_of_several or (is_inferred and count <= _MANY):
        keys = None  # each is parted, or compared with the row above, to find its step
    columns = _columns(template, tokens, keys)
    steps, laps = template.steps(tokens), marks.get("laps")
    if steps is not None and laps is not None:
        marks["lap_steps"] = _lap_steps(steps, marks["lap_steps"])
        steps = [s + n * each for s, n, each in zip(steps, laps, marks["lap_steps"], strict=True)]
    rises = steps is not None and increases(steps)
    if steps is not None and (steps[-1] if rises else max(steps)) > _LARGEST_STEP:
        return [], all_lines
    names, micros = tuple(template.columns), marks.get("micro")
    made = Rows(template.like, names, columns, index, steps, micros, 0, False)
    made.lap_steps = marks.get("lap_steps")
    if template.like.counts_epochs:
        made.laps = laps
    if is_of_several:
        return list(_by_rank(made, ranks)), singly
    made.rank, made.increasing = int(ranks[0]), rises
    return [made], singly


def _columns(
    template: Template, tokens: Tokens, keys: Collection[str] | None
) -> list[Sequence[float]]:
    return [
        column.of(tokens)
        if keys is None or key in keys
        else TokenColumn(column, tokens, 0, tokens.rows)
        for key, column in template.columns.items()
    ]


def _by_rank(rows: Rows, ranks: Sequence[float]) -> Iterator[Rows]:
    places: dict[float, list[int]] = defaultdict(list)
    for i, rank in enumerate(ranks):
        places[rank].append(i)
    for rank, chosen in sorted(places.items()):
        steps = None if rows.steps is None else [rows.steps[i] for i in chosen]
        yield Rows(
            rows.like,
            rows.keys,
            [[column[i] for i in chosen] for column in rows.columns],
            [rows.index[i] for i in chosen],
            steps,
            None if rows.micros is None else [rows.micros[i] for i in chosen],
            int(rank),
            steps is not None and increases(steps),
            laps=rows.laps and [rows.laps[i] for i in chosen],
            lap_steps=rows.lap_steps and [rows.lap_steps[i] for i in chosen],
        )


def increases(steps: Sequence[float]) -> bool:
    """Whether every step is higher than the one before."""
    return all(map(lt, steps, islice(steps, 1, None)))
