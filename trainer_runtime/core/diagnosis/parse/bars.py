"""The progress bar below a line without a step: HF draws it again after each print."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from trainer_runtime.core.diagnosis.parse.points import StepFrom
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows

BAR = b"%|"
# A bar belongs to a line if it is within this many lines below it, and another as near above.
_NEAR = 8
# Only bars without a description: the others count shards or examples.
_PLAIN_BAR = re.compile(
    rb"(?:\x1b\[A)?\s*\d{1,3}%\|[^|]*\|\s*(\d{1,15})/(\d{1,15}) \[[^\]]*?(?:it/s|s/it)"
)
_ANOTHER = re.compile(rb"\{['\"](?:loss|eval_|train_runtime)")

_Found = tuple[int, int]


class Bars:
    """Finds the bars of lines; its state is the last bar, the number of lines since, and whether
    there was a line that has one."""

    def __init__(self) -> None:
        self._since = _NEAR
        self._last: _Found | None = None
        self._has_logged = False  # otherwise the first line may be printed before any bar

    def waits(self, block: Block, all_rows: Sequence[Rows]) -> int | None:
        """The first line whose bar may still follow; None if there is none."""
        logged = list(_log_rows(all_rows))
        first = max(0, len(block.lines) - _NEAR) if logged else 0
        late = sorted(
            line for rows in logged for line in rows.index[bisect_left(rows.index, first) :]
        )
        begin = -1 if self._has_logged else _first_of(logged)
        for line in late:
            if line == begin == len(block.lines) - 1:
                return line
            if self._stood_above(block, line) and self._below(block, line) is ...:
                return line
        return None

    def bar_lookup(
        self, block: Block, all_rows: Sequence[Rows], without_rows: Sequence[int]
    ) -> Callable[[Sequence[int]], list[_Found | None]] | None:
        """A function from lines to their bars; None where no line of the block has one.
        `without_rows`: the lines with a bar that no rows are of."""
        count = sum(len(rows.index) for rows in _log_rows(all_rows))
        begin = -1 if self._has_logged else _first_of(_log_rows(all_rows))
        self._has_logged = self._has_logged or begin >= 0
        if not count or (self._since >= _NEAR and self._has_no_bars(block, count)):
            return None
        above = self._last if self._since < _NEAR else None
        bars, lines = set(without_rows), block.lines
        for rows in all_rows:
            bars.update([number for number in rows.index if BAR in lines[number]])
        found = _BarsOfBlock(lines, sorted(bars), _NEAR - self._since, above)
        found.begin = begin
        return found.of

    def advance(self, block: Block) -> None:
        """Remember the last bar of a block that was read."""
        lines = block.last(_NEAR).split(b"\n")[-2::-1]
        for back, line in enumerate(lines):
            if BAR in line:
                self._since = back
                self._last = _plain_bar(line)
                return
        self._since = min(self._since + len(lines), _NEAR)
        self._last = self._last if self._since < _NEAR else None

    def _has_no_bars(self, block: Block, logged: int) -> bool:
        return logged == len(block.lines) or BAR not in block.data

    def _stood_above(self, block: Block, line: int) -> bool:
        if line + self._since < _NEAR:
            return True
        return any(BAR in piece for piece in block.lines[max(0, line - _NEAR) : line])

    def _below(self, block: Block, line: int) -> Any:
        """The bar as (at, total); None if there is none; `...` if that needs further lines."""
        for piece in block.lines[line + 1 : line + 1 + _NEAR]:
            if bar := _PLAIN_BAR.match(piece):
                return int(bar[1]), int(bar[2])
            if _ANOTHER.search(piece):
                return None
        return ... if line + 1 + _NEAR > len(block.lines) else None

    def to_dict(self) -> dict[str, Any]:
        last = self._last and list(self._last)
        return {"since": self._since, "last": last, "has_logged": self._has_logged}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Bars:
        bars = cls()
        bars._since = data["since"]
        bars._last = tuple(data["last"]) if data["last"] else None
        bars._has_logged = data["has_logged"]
        return bars


class _BarsOfBlock:
    """The bars of a block's lines, of which `bars` have one, in order. `above` is the last before
    the block, near its first `within` lines."""

    def __init__(
        self, lines: Sequence[bytes], bars: Sequence[int], within: int, above: _Found | None
    ) -> None:
        self._lines, self._bars = lines, bars
        self._within, self._last = within, above
        self._plain: dict[int, _Found | None] = {}  # of those that were read, by line
        self.begin = -1  # the log's first line that may have a bar, which is then the next line

    def of(self, numbers: Sequence[int]) -> list[_Found | None]:
        """The bar of each line, below it or else above; None unless a bar stood above."""
        return list(map(self._of, numbers))

    def _of(self, number: int) -> _Found | None:
        at = bisect_left(self._bars, number)
        if at and self._bars[at - 1] >= number - _NEAR:
            return self._below(number, at) or self._bar(self._bars[at - 1])  # a few steps old
        if number < self._within:
            return self._below(number, at) or self._last
        return self._bar(number + 1) if number == self.begin and number + 1 in self._bars else None

    def _below(self, number: int, at: int) -> _Found | None:
        """The first bar below a line, unless another line is logged in between; those from number
        `at` on are not above it."""
        bars, above = self._bars, number
        for bar in bars[(first := bisect_right(bars, number, at)) : first + _NEAR]:
            if bar > number + _NEAR:
                break
            if above + 1 < bar and _ANOTHER.search(b"\n".join(self._lines[above + 1 : bar])):
                break
            if found := self._bar(bar):
                return found
            if _ANOTHER.search(self._lines[bar]):
                break
            above = bar
        return None

    def _bar(self, line: int) -> _Found | None:
        if line not in self._plain:
            self._plain[line] = _plain_bar(self._lines[line])
        return self._plain[line]


def _plain_bar(line: bytes) -> _Found | None:
    bar = _PLAIN_BAR.match(line)
    return (int(bar[1]), int(bar[2])) if bar else None


def _first_of(all_rows: Iterable[Rows]) -> int:
    """The first line with a loss; -1 if there is none."""
    return min((rows.index[0] for rows in all_rows if "loss" in rows.keys), default=-1)


def _log_rows(all_rows: Sequence[Rows]) -> Iterator[Rows]:
    return (rows for rows in all_rows if rows.like.source is StepFrom.LOG)
