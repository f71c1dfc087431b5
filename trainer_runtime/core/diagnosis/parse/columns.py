"""Columns of numbers in lines that are alike: converted at once, or where they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar, overload

from trainer_runtime.core.diagnosis.parse.quantities import same
from trainer_runtime.core.diagnosis.parse.tokens import Tokens
from trainer_runtime.core.records import dataclass

_FEW_VALUES = 4  # of a column are converted one by one,
_FEW_ROWS = 32  # unless it is short
_T = TypeVar("_T")


@dataclass(slots=True)
class Column:
    """A value in each row: token number `index` times `scale`; without an index always `value`."""

    index: int | None
    scale: float = 1.0
    value: float = 0.0

    def of(self, tokens: Tokens) -> Sequence[float]:
        """The column's values in all rows."""
        return self.part(tokens, slice(0, tokens.rows))

    def part(self, tokens: Tokens, rows: slice) -> Sequence[float]:
        """Its values in some neighbouring rows."""
        if self.index is None:
            return [self.value] * (rows.stop - rows.start)
        return tokens.values(self.index, rows, self.scale)

    def repeats(self, tokens: Tokens, rows: Collection[int]) -> bool:
        """Whether each of these rows is known to have the value of the row before."""
        return self.index is None or tokens.repeat(self.index, rows)


class TokenColumn(Sequence[float]):
    """A column in rows `first` to before `end`, converted where it is read: most readers of a log
    need a few of its columns."""

    __slots__ = ("_column", "_end", "_first", "_singly", "_tokens", "_values")

    def __init__(self, column: Column, tokens: Tokens, first: int, end: int) -> None:
        self._column, self._tokens = column, tokens
        self._first, self._end = first, end
        self._singly = 0  # how many values were converted one by one
        self._values: Sequence[float] | None = None

    @property
    def is_converted(self) -> bool:
        return self._values is not None

    def values(self) -> Sequence[float]:
        if self._values is None:
            self._values = self._column.part(self._tokens, slice(self._first, self._end))
        return self._values

    def equal_to_previous(self, rows: Sequence[int]) -> list[int]:
        """Of `rows`, those with the value of the row before. Texts that are equal need not be
        converted."""
        if self._values is None:
            own = [self._first + i for i in rows]
            if self._column.repeats(self._tokens, own):
                return list(rows)
            if len(rows) * _FEW_ROWS <= len(self):
                return [i for i in rows if same(self._single(i), self._single(i - 1))]
        values = self.values()
        return [i for i in rows if same(values[i], values[i - 1])]

    def _single(self, at: int) -> float:
        """A value, converted alone."""
        row = self._first + at
        return self._column.part(self._tokens, slice(row, row + 1))[0]

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
            return self._single(range(len(self))[at])
        rows = range(self._first, self._end)[at]
        if rows.step != 1:
            return self.values()[at]
        return TokenColumn(self._column, self._tokens, rows.start, rows.stop)


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


def column_in_rows(column: Sequence[float], rows: Sequence[int]) -> Sequence[float]:
    """The column in some rows, in ascending order; not converted if it was not."""
    is_apart = rows[-1] - rows[0] + 1 > len(rows)
    if is_apart and isinstance(column, TokenColumn) and not column.is_converted:
        return ChosenColumn(column, rows)
    return in_rows(column, rows)


def in_rows(column: Sequence[_T], rows: Sequence[int]) -> Sequence[_T]:
    """The column in some rows, in ascending order."""
    if len(rows) == len(column):
        return column
    first, last = rows[0], rows[-1]
    if last - first + 1 == len(rows):
        return column[first : last + 1]
    return list(map(column.__getitem__, rows))
