"""A template reads all lines of one shape in bulk. The shape of a line: every digit as 0."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.parse.points import Reading

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
        if self.index is None:
            return [self.value] * rows
        values = list(map(float, tokens[self.index :: width]))
        if self.scale != 1.0:
            return [value * self.scale for value in values]
        return values


@dataclass(slots=True, eq=False)
class Template:
    """One kind of line.

    `like` is the reading that it was learnt from. `shape` matches the shapes of all lines that it
    reads, `lines` the lines themselves, many at once. `table` and `delete` turn a line into its
    `width` tokens; those in `fixed` must be the same in every line.
    """

    like: Reading
    shape: re.Pattern[bytes]
    lines: re.Pattern[bytes]
    table: bytes
    delete: bytes
    width: int
    columns: dict[str, Column]
    marks: dict[str, Column]
    fixed: list[tuple[int, bytes]]

    def tokens(self, text: bytes, rows: int) -> tuple[list[bytes], list[int]] | None:
        """The tokens of the lines of this shape among `rows`, and the rows that are not of it,
        because a fixed token differs; None if the lines can't be separated."""
        found = text.translate(self.table, self.delete).split()
        width = self.width
        if len(found) != rows * width:
            return None
        others: set[int] = set()
        for index, must_be in self.fixed:
            column = found[index::width]
            if column.count(must_be) != rows:
                others.update(row for row, token in enumerate(column) if token != must_be)
        if not others:
            return found, []
        kept = (row for row in range(rows) if row not in others)
        return [token for row in kept for token in found[row * width : (row + 1) * width]], sorted(
            others
        )
