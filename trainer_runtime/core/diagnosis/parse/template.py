"""A template reads all lines of one shape in bulk. The shape of a line: every digit as 0."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, overload

from trainer_runtime.core.diagnosis.parse.conversion import Conversion
from trainer_runtime.core.diagnosis.parse.even_steps import even_steps
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.quantities import same
from trainer_runtime.core.records import dataclass

# What a token may be besides a value: fields of a reading.
MARKS = ("step", "micro", "laps", "lap_steps", "rank")

_PLAIN_SHAPE = re.compile(rb"0+(?:\.(0*))?")
# Of so many, the number without its point and the power of ten are exact floats: their quotient is
# what `float` makes of the text.
_MOST_DIGITS = 15
_MOST_SHAPES = 1024
_FEW_VALUES = 4  # of a column are converted one by one,
_FEW_ROWS = 32  # unless it is short


class Tokens(NamedTuple):
    """The tokens of lines of one shape, as many a line as it has numbers.

    `decimals`: how many digits each of a line's tokens that is read has behind its point, which was
    left out; `float` takes twice as long for it. None: they may differ from line to line.
    """

    texts: list[bytes]
    decimals: tuple[int, ...] | None


@dataclass(slots=True)
class Column:
    """A value in each row: token number `index`, converted; without an index always `value`."""

    index: int | None
    conversion: Conversion
    value: float = 0.0

    def of(self, tokens: Tokens, rows: int) -> list[float]:
        """The column's values in all rows."""
        return self.part(tokens, rows, slice(0, rows))

    def part(self, tokens: Tokens, count: int, rows: slice) -> list[float]:
        """Its values in some neighbouring rows, of `count`."""
        if self.index is None:
            return [self.value] * (rows.stop - rows.start)
        width = len(tokens.texts) // count
        begin, end = self.index + rows.start * width, rows.stop * width
        decimals = None if tokens.decimals is None else tokens.decimals[self.index]
        return self.conversion.values(tokens.texts[begin:end:width], decimals)

    def texts(self, tokens: Tokens, rows: int) -> list[bytes]:
        """Its tokens; none where it is always the same."""
        if self.index is None:
            return []
        return tokens.texts[self.index :: len(tokens.texts) // rows]

    def steps(self, tokens: Tokens, rows: int) -> Sequence[float]:
        """The same of a column of steps, which mostly rise evenly."""
        is_whole = self.index is not None and not (tokens.decimals and tokens.decimals[self.index])
        if is_whole and self.conversion.scale == 1.0:
            steps = even_steps(self.texts(tokens, rows))
            if steps is not None:
                return steps
        return self.of(tokens, rows)


class TokenColumn(Sequence[float]):
    """A column in rows `first` to before `end`, converted where it is read: most readers of a log
    need a few of its columns."""

    __slots__ = ("_column", "_count", "_end", "_first", "_singly", "_tokens", "_values")

    def __init__(self, column: Column, tokens: Tokens, count: int, first: int, end: int) -> None:
        self._column, self._tokens, self._count = column, tokens, count
        self._first, self._end = first, end
        self._singly = 0  # how many values were converted one by one
        self._values: list[float] | None = None

    @property
    def is_converted(self) -> bool:
        return self._values is not None

    def values(self) -> list[float]:
        if self._values is None:
            rows = slice(self._first, self._end)
            self._values = self._column.part(self._tokens, self._count, rows)
        return self._values

    def equal_to_previous(self, rows: Sequence[int]) -> list[int]:
        """Of `rows`, those with the value of the row before. Texts that are equal need not be
        converted."""
        if self._values is None:
            texts = self._column.texts(self._tokens, self._count)[self._first : self._end]
            if not texts or all(texts[i] == texts[i - 1] for i in rows):
                return list(rows)
        values = self.values()
        return [i for i in rows if same(values[i], values[i - 1])]

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[float]:
        return iter(self.values())

    @overload
    def __getitem__(self, at: int) -> float: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[float]: ...

    def __getitem__(self, at: int | slice) -> float | Sequence[float]:
        if self._values is not None:
            return self._values[at]
        if isinstance(at, int):
            if self._singly >= _FEW_VALUES or len(self) <= _FEW_ROWS:
                return self.values()[at]
            self._singly += 1
            row = range(self._first, self._end)[at]
            return self._column.part(self._tokens, self._count, slice(row, row + 1))[0]
        rows = range(self._first, self._end)[at]
        if rows.step != 1:
            return self.values()[at]
        return TokenColumn(self._column, self._tokens, self._count, rows.start, rows.stop)


class ChosenColumn(Sequence[float]):
    """Some rows of a column, which is converted where they are read."""

    __slots__ = ("_column", "_rows", "_values")

    def __init__(self, column: TokenColumn, rows: Sequence[int]) -> None:
        self._column, self._rows = column, rows
        self._values: list[float] | None = None

    def values(self) -> list[float]:
        if self._values is None:
            self._values = list(map(self._column.values().__getitem__, self._rows))
        return self._values

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[float]:
        return iter(self.values())

    @overload
    def __getitem__(self, at: int) -> float: ...

    @overload
    def __getitem__(self, at: slice) -> list[float]: ...

    def __getitem__(self, at: int | slice) -> float | list[float]:
        return self.values()[at]


def as_list(column: Sequence[float]) -> Sequence[float]:
    """A column that is converted or short as a list, whose values are found faster."""
    if isinstance(column, TokenColumn) and (column.is_converted or len(column) <= _FEW_ROWS):
        return column.values()
    return column


def is_text(column: Sequence[float]) -> bool:
    """Whether the column is yet to be converted."""
    return isinstance(column, TokenColumn) and not column.is_converted


@dataclass(slots=True, eq=False)
class Template:
    """One kind of line.

    `like` is the reading that it was learnt from. `shape` matches the shapes of all lines that it
    reads, `lines_pattern` the lines themselves, many at once. `table` and `delete` turn a line into
    its `width` tokens; those in `fixed` must be the same in every line.
    """

    like: Reading
    shape: re.Pattern[bytes]
    lines_pattern: bytes
    table: bytes
    delete: bytes
    width: int
    columns: dict[str, Column]
    marks: dict[str, Column]
    fixed: list[tuple[int, bytes]]
    _lines: re.Pattern[bytes] | None = None
    _decimals: dict[bytes, tuple[int, ...] | None] = field(default_factory=dict)

    def all_columns(self) -> list[Column]:
        """Those of values and of marks."""
        return [*self.columns.values(), *self.marks.values()]

    def reads_all(self, text: bytes, rows: int) -> bool:
        """Whether it reads each of the `rows` lines."""
        if self._lines is None:
            self._lines = re.compile(self.lines_pattern, re.MULTILINE)
        return len(self._lines.findall(text)) == rows

    def split(self, text: bytes, *, without_points: bool = False) -> list[bytes]:
        """The tokens of lines; those of this shape have `width` each."""
        return text.translate(self.table, self.delete + b"." * without_points).split()

    def decimals(self, shapes: Collection[bytes]) -> tuple[int, ...] | None:
        """How many digits each token that is read has behind its point in lines of all these
        shapes; None where they differ, or such a token is more than digits and a point."""
        found = {self._decimals_in(shape) for shape in shapes}
        return found.pop() if len(found) == 1 else None

    def _decimals_in(self, shape: bytes) -> tuple[int, ...] | None:
        if shape not in self._decimals:
            if len(self._decimals) >= _MOST_SHAPES:
                self._decimals.clear()
            self._decimals[shape] = self._decimals_of(self.split(shape))
        return self._decimals[shape]

    def _decimals_of(self, tokens: Sequence[bytes]) -> tuple[int, ...] | None:
        read = {column.index for column in self.all_columns()}
        read.update(index for index, _ in self.fixed)
        found = [0] * len(tokens)
        for index, token in enumerate(tokens):
            match = _PLAIN_SHAPE.fullmatch(token)
            if index in read:
                if match is None or len(token) > _MOST_DIGITS:
                    return None
                found[index] = len(match[1] or b"")
            elif not token.strip(b"."):  # which would be no token without its points
                return None
        return tuple(found)

    def steps(self, tokens: Tokens, rows: int) -> Sequence[float] | None:
        """The step of each row; None where lines have none."""
        column = self.marks.get("step")
        return None if column is None else column.steps(tokens, rows)

    def splits_like(self, other: Template) -> bool:
        """Whether a line has the same tokens for both."""
        return (self.table, self.delete) == (other.table, other.delete)

    def odd_rows(self, tokens: Tokens, rows: int) -> list[int] | None:
        """The rows that are not of this shape, because a fixed token differs; None if the lines
        can't be separated."""
        width = self.width
        if len(tokens.texts) != rows * width:
            return None
        odd: set[int] = set()
        for index, fixed in self.fixed:
            must_be = fixed if tokens.decimals is None else fixed.replace(b".", b"")
            column = tokens.texts[index::width]
            if column.count(must_be) != rows:
                odd.update(row for row, token in enumerate(column) if token != must_be)
        return sorted(odd)
