"""A curve in the terminal, several lines high."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Dots of a braille character by column and row, from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800


def curve(
    points: Sequence[tuple[float, float]],
    *,
    width: int = 64,
    height: int = 10,
    mark_x: float | None = None,
) -> list[str]:
    """Lines that draw (x, y), rising in x, with y's scale at the left and x's below.

    `mark_x` gets a tick under the curve. Values that are not finite leave a gap.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return ["(nothing to draw)"]
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    first, last = finite[0][0], finite[-1][0]
    cells = [[_BLANK] * width for _ in range(height)]
    for x, y in finite:
        column = _scaled(x, first, last, 2 * width)
        row = 4 * height - 1 - _scaled(y, low, high, 4 * height)
        cells[row // 4][column // 2] |= _DOTS[column % 2][row % 4]
    lines = [
        f"{_label(row, height, low, high):>8} ┤{''.join(map(chr, cells[row]))}"
        for row in range(height)
    ]
    return [*lines, *_axis(first, last, width, mark_x)]


def _axis(first: float, last: float, width: int, mark_x: float | None) -> list[str]:
    ticks = ["─"] * width
    if mark_x is not None:
        ticks[_scaled(mark_x, first, last, width)] = "┴"
    left, right = f"{first:g}", f"{last:g}"
    between = " " * max(1, width - len(left) - len(right))
    return [f"{'':>8} └{''.join(ticks)}", f"{'':>10}{left}{between}{right}"]


def _label(row: int, height: int, low: float, high: float) -> str:
    if row not in (0, height // 2, height - 1):
        return ""
    return f"{high - (high - low) * row / (height - 1):.3f}"


def _scaled(value: float, low: float, high: float, size: int) -> int:
    """The cell of `value` among `size` between `low` and `high`."""
    share = (value - low) / (high - low) if high > low else 0.0
    return min(size - 1, max(0, int(share * size)))
