"""Draws curves in characters: braille dots for terminals, letters for plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.records import dataclass

Points = Sequence[tuple[float, float]]
# Dots of a braille character by column and row, from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Span:
    """Text that belongs to one curve, or to none."""

    text: str
    curve: int | None = None


Line = Sequence[Span]


def curve(points: Points, *, mark_x: float | None = None) -> list[str]:
    """Lines that draw (x, y), rising in x, in dots; `mark_x` gets a tick under the curve."""
    return [plain(line) for line in sketch([points], dots=True, marks=[mark_x] if mark_x else ())]


def plain(line: Line) -> str:
    """The line's text alone."""
    return "".join(span.text for span in line).rstrip()


def letter(curve: int, among: int) -> str:
    """The character that stands for a curve in plain text."""
    return "*" if among == 1 else _LETTERS[curve % len(_LETTERS)]


def sketch(
    curves: Sequence[Points],
    *,
    dots: bool,
    width: int = 64,
    height: int = 10,
    marks: Sequence[float] = (),
) -> list[Line]:
    """Lines with all curves over one pair of axes: y's scale at the left, x's below.

    Values that are not finite leave a gap. Each of `marks` is an x that gets a tick.
    """
    finite = [[(x, y) for x, y in points if math.isfinite(y)] for points in curves]
    everything = [point for points in finite for point in points]
    if not everything:
        return [[Span("(nothing to draw)")]]
    canvas = _Canvas(
        min(x for x, _ in everything),
        max(x for x, _ in everything),
        min(y for _, y in everything),
        max(y for _, y in everything),
        width,
        height,
    )
    rows = (_dotted if dots else _lettered)(finite, canvas)
    lines: list[Line] = [
        [Span(f"{_label(index, canvas):>9} {'┤' if dots else '|'}"), *row]
        for index, row in enumerate(rows)
    ]
    return [*lines, *([Span(text)] for text in _axis(canvas, marks, dots))]


@dataclass(frozen=True, slots=True)
class _Canvas:
    """The ranges of both axes, and the size in characters."""

    left: float
    right: float
    low: float
    high: float
    width: int
    height: int


def _dotted(curves: Sequence[Points], canvas: _Canvas) -> list[Line]:
    cells = [[_BLANK] * canvas.width for _ in range(canvas.height)]
    owners: list[list[int | None]] = [[None] * canvas.width for _ in range(canvas.height)]
    for index, points in enumerate(curves):
        for x, y in points:
            column = _scaled(x, canvas.left, canvas.right, 2 * canvas.width)
            row = 4 * canvas.height - 1 - _scaled(y, canvas.low, canvas.high, 4 * canvas.height)
            cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
            owners[row // 4][column // 2] = index
    return [
        [Span(chr(cell), owner) for cell, owner in zip(row, owned, strict=True)]
        for row, owned in zip(cells, owners, strict=True)
    ]


def _lettered(curves: Sequence[Points], canvas: _Canvas) -> list[Line]:
    cells: list[list[Span]] = [[Span(" ")] * canvas.width for _ in range(canvas.height)]
    for index, points in enumerate(curves):
        for x, y in points:
            column = _scaled(x, canvas.left, canvas.right, canvas.width)
            row = canvas.height - 1 - _scaled(y, canvas.low, canvas.high, canvas.height)
            cells[row][column] = Span(letter(index, len(curves)), index)
    return [list(row) for row in cells]


def _axis(canvas: _Canvas, marks: Sequence[float], dots: bool) -> list[str]:
    ticks = ["─" if dots else "-"] * canvas.width
    for mark in marks:
        ticks[_scaled(mark, canvas.left, canvas.right, canvas.width)] = "┴" if dots else "^"
    left, right = f"{canvas.left:g}", f"{canvas.right:g}"
    between = " " * max(1, canvas.width - len(left) - len(right))
    corner = "└" if dots else "+"
    return [f"{'':>9} {corner}{''.join(ticks)}", f"{'':>11}{left}{between}{right}"]


def _label(row: int, canvas: _Canvas) -> str:
    if row not in (0, canvas.height // 2, canvas.height - 1):
        return ""
    return number_text(canvas.high - (canvas.high - canvas.low) * row / (canvas.height - 1))


def _scaled(value: float, low: float, high: float, size: int) -> int:
    """The cell of `value` among `size` between `low` and `high`."""
    share = (value - low) / (high - low) if high > low else 0.0
    return min(size - 1, max(0, int(share * size)))
