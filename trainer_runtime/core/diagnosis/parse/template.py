"""A template reads all lines of one shape in bulk. The shape of a line: every digit as 0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import overload

from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.records import dataclass

# What a token may be besides a value: fields of a reading.
MARKS = ("step", "micro", "laps", "lap_steps", "rank")


@dataclass(frozen=True, slots=True)
class Column:
    """A value in each row: token number `index` times `scale`; without an index always `value`."""

    index: int | None
    scale: float
    value: float = 0.0

    def of(self, tokens: list[bytes], width: int, rows: int) -> list[float]:
        """The column's values, given the `width` tokens of each of the rows."""
        return self.part(tokens, width, slice(0, rows))

    def part(self, tokens: list[bytes], width: int, rows: slice) -> list[float]:
        """Its values in some neighbouring rows."""
        if self.index is None:
            return [self.value] * (rows.stop - rows.start)
        begin, end = self.index + rows.start * width, rows.stop * width
        values = list(map(float, tokens[begin:end:width]))
        if self.scale != 1.0:
            return [value * self.scale for value in values]
        return values


class TokenColumn(Sequence[float]):
    """A column in rows `first` to before `end`, converted where it is read: most readers of a log
    need a few of its columns."""

    __slots__ = ("_column", "_end", "_first", "_tokens", "_values", "_width")

    def __init__(
        self, column: Column, tokens: list[bytes], width: int, first: int, end: int
    ) -> None:
        self._column, self._tokens, self._width = column, tokens, width
        self._first, self._end = first, end
        self._values: list[float] | None = None

    def values(self) -> list[float]:
        if self._values is None:
            rows = slice(self._first, self._end)
            self._values = self._column.part(self._tokens, self._width, rows)
        return self._values

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
            row = range(self._first, self._end)[at]
            return self._column.part(self._tokens, self._width, slice(row, row + 1))[0]
        rows = range(self._first, self._end)[at]
        if rows.step != 1:
            return self.values()[at]
        return TokenColumn(self._column, self._tokens, self._width, rows.start, rows.stop)


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

    def reads_all(self, text: bytes, rows: int) -> bool:
        """Whether it reads each of the `rows` lines."""
        if self._lines is None:
            self._lines = re.compile(self.lines_pattern, re.MULTILINE)
        return len(self._lines.findall(text)) == rows

    def split(self, text: bytes) -> list[bytes]:
        """The tokens of lines; those of this shape have `width` each."""
        return text.translate(self.table, self.delete).split()

    def splits_like(self, other: Template) -> bool:
        """Whether a line has the same tokens for both."""
        return (self.table, self.delete) == (other.table, other.delete)

    def odd_rows(self, tokens: list[bytes], rows: int) -> list[int] | None:
        """The rows that are not of this shape, because a fixed token differs; None if the lines
        can't be separated."""
        width = self.width
        if len(tokens) != rows * width:
            return None
        odd: set[int] = set()
        for index, must_be in self.fixed:
            column = tokens[index::width]
            if column.count(must_be) != rows:
                odd.update(row for row, token in enumerate(column) if token != must_be)
        return sorted(odd)
