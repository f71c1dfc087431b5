"""The number tokens of lines that are alike, by their place in the line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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

    def values(self, index: int, rows: slice, scale: float) -> Sequence[float]:
        """The numbers that a token is in some neighbouring rows, times `scale`."""
        width = len(self.texts) // self.rows
        texts = self.texts[index + rows.start * width : rows.stop * width : width]
        decimals = None if self.decimals is None else self.decimals[index]
        if decimals is None:
            values = list(map(float, texts))
        else:
            power = 10**decimals
            values = [digits / power for digits in map(int, texts)]
        return values if scale == 1.0 else [value * scale for value in values]

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

    def _column(self, index: int) -> list[bytes]:
        return self.texts[index :: len(self.texts) // self.rows]
