"""A template reads all lines of one shape in bulk. The shape of a line: every digit as 0."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import field

from trainer_runtime.core.diagnosis.parse.columns import Column
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.tokens import Tokens
from trainer_runtime.core.records import dataclass

# What a token may be besides a value: fields of a reading.
MARKS = ("step", "micro", "laps", "lap_steps", "rank")

_MOST_SHAPES = 1024
# A sign, digits with a point, an exponent, of which the digits are zeros.
_NUMBER = re.compile(rb"(?P<sign>-?)0+(?:\.(?P<decimals>0*))?(?:[eE](?P<exponent>[-+]?)0{1,3})?")
# Of so many digits, the number without its point and the power of ten are exact floats: their
# quotient is what `float` makes of the text.
_MOST_DIGITS = 15


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
            match = _NUMBER.fullmatch(token)
            if index in read:
                if match is None or match["sign"] or match["exponent"] is not None:
                    return None
                if len(token) > _MOST_DIGITS:
                    return None
                found[index] = len(match["decimals"] or b"")
            elif not token.strip(b"."):  # which would be no token without its points
                return None
        return tuple(found)

    def steps(self, tokens: Tokens) -> Sequence[float] | None:
        """The step of each row; None where lines have none."""
        column = self.marks.get("step")
        return None if column is None else column.of(tokens)

    def splits_like(self, other: Template) -> bool:
        """Whether a line has the same tokens for both."""
        return (self.table, self.delete) == (other.table, other.delete)

    def odd_rows(self, tokens: Tokens) -> list[int] | None:
        """The rows that are not of this shape, because a fixed token differs; None if the lines
        can't be separated."""
        if not tokens.has_width(self.width):
            return None
        odd: set[int] = set()
        for index, fixed in self.fixed:
            odd.update(tokens.rows_without(index, fixed))
        return sorted(odd)
