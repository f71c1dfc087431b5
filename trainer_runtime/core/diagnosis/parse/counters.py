"""A counter on a line of its own, and the first loss below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge

from trainer_runtime.core.diagnosis.parse.points import Heading, StepFrom
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows

_NEAR = 32  # lines: a loss further down is of something else
# In lines between them: the loss is one of an evaluation.
_HELD_OUT = re.compile(
    rb"(?<![\w/.])(?:val|valid\w*|eval\w*|test(?:ing)?|dev)(?![\w/.-])", re.IGNORECASE
)


@dataclass(slots=True)
class Counter:
    """The last counter above the block, so many lines `above` it; None where its loss was read, or
    what is below it is evaluated."""

    step: float | None = None
    above: int = 0

    def steps_below(self, all_rows: Sequence[Rows], block: Block) -> dict[int, float]:
        """The steps of rows below counters, by line."""
        heads = [_lines(rows, rows.steps) for rows in all_rows if rows.like.heads is not None]
        below = [_lines(rows, None) for rows in all_rows if rows.like.source is StepFrom.ABOVE]
        line = -self.above
        found: dict[int, float] = {}
        for at, step in merge(*map(sorted, (*heads, *below)), key=_first):
            if step is not None:
                self.step, line = (None if step < 0 else step), at
            elif self.step is not None:
                if at - line <= _NEAR and not _evaluates(block, line, at):
                    found[at] = self.step
                self.step = None
        self.above = block.count - line
        if self.above > _NEAR or (self.step is not None and _evaluates(block, line, block.count)):
            self.step = None
        return found


def _first(row: tuple[int, float | None]) -> int:
    return row[0]


def _lines(rows: Rows, steps: Sequence[float] | None) -> list[tuple[int, float | None]]:
    """The lines with the step that each names, -1 where it is not that of a line below."""
    if steps is None:
        return [(line, None) for line in rows.index]
    counts = rows.like.heads is Heading.COUNTER
    return [(line, step if counts else -1.0) for line, step in zip(rows.index, steps, strict=True)]


def _evaluates(block: Block, line: int, end: int) -> bool:
    """Whether a line below `line` and before `end` says so."""
    between = block.lines[max(line + 1, 0) : end]
    return any(map(_HELD_OUT.search, between))
