"""Curves in characters, several lines high: dots for terminals, letters for plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]
# Dots of a braille character by column and row, from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Span:
    """Text that belongs to one of the curves, or to none of them."""

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
    box = _Box(
        min(x for x, _ in everything),
        max(x for x, _ in everything),
        min(y for _, y in everything),
        max(y for _, y in everything),
        width,
        height,
    )
    rows = (_dotted if dots else _lettered)(finite, box)
    lines: list[Line] = [
        [Span(f"{_label(index, box):>9} {'┤' if dots else '|'}"), *row]
        for index, row in enumerate(rows)
    ]
    return [*lines, *([Span(text)] for text in _axis(box, marks, dots))]


@dataclass(frozen=True, slots=True)
class _Box:
    """What is shown: the range of either axis, and the characters there are for it."""

    left: float
    right: float
    low: float
    high: float
    width: int
    height: int


def _dotted(curves: Sequence[Points], box: _Box) -> list[Line]:
    cells = [[_BLANK] * box.width for _ in range(box.height)]
    owners: list[list[int | None]] = [[None] * box.width for _ in range(box.height)]
    for index, points in enumerate(curves):
        for x, y in points:
            column = _scaled(x, box.left, box.right, 2 * box.width)
            row = 4 * box.height - 1 - _scaled(y, box.low, box.high, 4 * box.height)
            cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
            owners[row // 4][column // 2] = index
    return [
        [Span(chr(cell), owner) for cell, owner in zip(row, owned, strict=True)]
        for row, owned in zip(cells, owners, strict=True)
    ]


def _lettered(curves: Sequence[Points], box: _Box) -> list[Line]:
    cells: list[list[Span]] = [[Span(" ")] * box.width for _ in range(box.height)]
    for index, points in enumerate(curves):
        for x, y in points:
            column = _scaled(x, box.left, box.right, box.width)
            row = box.height - 1 - _scaled(y, box.low, box.high, box.height)
            cells[row][column] = Span(letter(index, len(curves)), index)
    return [list(row) for row in cells]


def _axis(box: _Box, marks: Sequence[float], dots: bool) -> list[str]:
    ticks = ["─" if dots else "-"] * box.width
    for mark in marks:
        ticks[_scaled(mark, box.left, box.right, box.width)] = "┴" if dots else "^"
    left, right = f"{box.left:g}", f"{box.right:g}"
    between = " " * max(1, box.width - len(left) - len(right))
    corner = "└" if dots else "+"
    return [f"{'':>9} {corner}{''.join(ticks)}", f"{'':>11}{left}{between}{right}"]


def _label(row: int, box: _Box) -> str:
    if row not in (0, box.height // 2, box.height - 1):
        return ""
    return f"{box.high - (box.high - box.low) * row / (box.height - 1):.4g}"


def _scaled(value: float, low: float, high: float, size: int) -> int:
    """The cell of `value` among `size` between `low` and `high`."""
    share = (value - low) / (high - low) if high > low else 0.0
    return min(size - 1, max(0, int(share * size)))
