"""The number tokens of lines that are alike, by their place in the line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainer_runtime.core.diagnosis.parse.conversion import Conversion
from trainer_runtime.core.diagnosis.parse.even_steps import even_steps
from trainer_runtime.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens as texts, one after the other, of `rows` lines.

    `decimals`: how many digits each of a line's tokens that is read has behind its point, which was
    left out; `float` takes twice as long for it. None: they may differ from line to line.
    """

    texts: list[bytes]
    rows: int
    decimals: tuple[int, ...] | None

    def has_width(self, width: int) -> bool:
        """Whether each line has so many tokens. Nothing else may be called where that is not so."""
        return len(self.texts) == self.rows * width

    def values(self, index: int, rows: slice, conversion: Conversion) -> Sequence[float]:
        """The numbers that a token is in some neighbouring rows; not to be changed."""
        width = len(self.texts) // self.rows
        begin, end = index + rows.start * width, rows.stop * width
        return conversion.values(self.texts[begin:end:width], self._decimals_of(index))

    def steps(self, index: int, conversion: Conversion) -> Sequence[float]:
        """The same in all rows, of a token that counts; `EvenSteps` where they rise evenly."""
        if not self._decimals_of(index) and conversion.scale == 1.0:
            steps = even_steps(self._column(index))
            if steps is not None:
                return steps
        return self.values(index, slice(0, self.rows), conversion)

    def repeat(self, index: int, rows: Collection[int]) -> bool:
        """Whether a token is the same in each of these rows as in the row before."""
        texts = self._column(index)
        return all(texts[row] == texts[row - 1] for row in rows)

    def rows_without(self, index: int, fixed: bytes) -> Collection[int]:
        """The rows in which a token is not `fixed`."""
        must_be = fixed if self.decimals is None else fixed.replace(b".", b"")
        texts = self._column(index)
        if texts.count(must_be) == len(texts):
            return ()
        return [row for row, text in enumerate(texts) if text != must_be]

    def without(self, rows: Sequence[int]) -> Tokens:
        """The tokens of all rows but some, in ascending order."""
        width = len(self.texts) // self.rows
        kept: list[bytes] = []
        begin = 0
        for row in rows:
            kept += self.texts[begin : row * width]
            begin = (row + 1) * width
        kept += self.texts[begin:]
        return Tokens(kept, self.rows - len(rows), self.decimals)

    def _decimals_of(self, index: int) -> int | None:
        return None if self.decimals is None else self.decimals[index]

    def _column(self, index: int) -> list[bytes]:
        return self.texts[index :: len(self.texts) // self.rows]
