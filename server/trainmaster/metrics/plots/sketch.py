"""Draws curves in characters: braille dots for terminals, letters for plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[float, float]]
# Dots of a braille character by column and row, from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Where several curves pass through the same cells, each is seen for so many columns in turn.
_TURN = 3
# Columns from one letter of a dotted curve to its next; a curve of few cells is all letters.
_LETTER_EVERY = 12
# Of an axis: numbers in between need no exponent; digits that distinguish its ends.
_PLAIN_FROM, _PLAIN_UNTIL, _DIGITS = 1e-3, 1e7, 3


@dataclass(frozen=True, slots=True)
class Span:
    """Text that belongs to one curve, or to none."""

    text: str
    curve: int | None = None


Line = Sequence[Span]
_Cell = tuple[int, int]  # row, column


def curve(points: Points, *, mark_x: float | None = None) -> list[str]:
    """Lines that draw (x, y), rising in x, in dots; `mark_x` gets a tick under the curve."""
    return [plain(line) for line in sketch([points], dots=True, marks=[mark_x] if mark_x else ())]


def plain(line: Line) -> str:
    """The line's text alone."""
    return "".join(span.text for span in line).rstrip()


def letter(curve: int, among: int) -> str:
    """The character that stands for a curve, whatever its colour."""
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

    Values that are not finite leave a gap. Each of `marks` is an x that gets a tick. Several curves
    are distinguished by their letters: of `dots`, at some places of each.
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
    labels = _labels(canvas)
    lines: list[Line] = [
        [Span(f"{labels.get(index, ''):>9} {'┤' if dots else '|'}"), *row]
        for index, row in enumerate(_rows(finite, canvas, dots=dots))
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


def _rows(curves: Sequence[Points], canvas: _Canvas, *, dots: bool) -> list[Line]:
    passed = [list(dict.fromkeys(_cell(x, y, canvas) for x, y in points)) for points in curves]
    owners = _owners(passed, canvas)
    braille = _braille(curves, canvas) if dots else {}
    letters = _letters(passed, canvas) if dots else owners
    empty = chr(_BLANK) if dots else " "

    def span(cell: _Cell) -> Span:
        if cell in letters:
            return Span(letter(letters[cell], len(curves)), letters[cell])
        return Span(chr(braille[cell]), owners[cell]) if cell in braille else Span(empty)

    return [[span((row, column)) for column in range(canvas.width)] for row in range(canvas.height)]


def _owners(passed: Sequence[Sequence[_Cell]], canvas: _Canvas) -> dict[_Cell, int]:
    """By cell the curve that is seen there: a sparse one, else each in turn."""
    sparse = {index for index, cells in enumerate(passed) if _is_sparse(cells, canvas)}
    through: dict[_Cell, list[int]] = {}
    for index, cells in enumerate(passed):
        for cell in cells:
            through.setdefault(cell, []).append(index)
    first = {cell: [i for i in among if i in sparse] or among for cell, among in through.items()}
    return {cell: among[cell[1] // _TURN % len(among)] for cell, among in first.items()}


def _is_sparse(cells: Sequence[_Cell], canvas: _Canvas) -> bool:
    """Whether a curve has few points, as evaluations have."""
    return len(cells) * 4 < canvas.width


def _letters(passed: Sequence[Sequence[_Cell]], canvas: _Canvas) -> dict[_Cell, int]:
    """By cell the curve whose letter stands there, of one alone none."""
    letters: dict[_Cell, int] = {}
    if len(passed) < 2:
        return letters
    every = max(_LETTER_EVERY, 2 * len(passed))
    for index, cells in enumerate(passed):
        place = index * every // len(passed)
        is_sparse = _is_sparse(cells, canvas)
        here = [cell for cell in cells if is_sparse or cell[1] % every == place]
        free = [cell for cell in here or cells if cell not in letters]
        letters |= dict.fromkeys(free if here else free[len(free) // 2 :][:1], index)
    return letters


def _braille(curves: Sequence[Points], canvas: _Canvas) -> dict[_Cell, int]:
    dots: dict[_Cell, int] = {}
    for x, y in (point for points in curves for point in points):
        column = _scaled(x, canvas.left, canvas.right, 2 * canvas.width)
        row = 4 * canvas.height - 1 - _scaled(y, canvas.low, canvas.high, 4 * canvas.height)
        cell = (row // 4, column // 2)
        dots[cell] = dots.get(cell, _BLANK) | _DOTS[column % 2][row % 4]
    return dots


def _cell(x: float, y: float, canvas: _Canvas) -> _Cell:
    row = canvas.height - 1 - _scaled(y, canvas.low, canvas.high, canvas.height)
    return row, _scaled(x, canvas.left, canvas.right, canvas.width)


def _axis(canvas: _Canvas, marks: Sequence[float], dots: bool) -> list[str]:
    ticks = ["─" if dots else "-"] * canvas.width
    for mark in marks:
        ticks[_scaled(mark, canvas.left, canvas.right, canvas.width)] = "┴" if dots else "^"
    left, right = _alike([canvas.left, canvas.right])
    between = " " * max(1, canvas.width - len(left) - len(right))
    corner = "└" if dots else "+"
    return [f"{'':>9} {corner}{''.join(ticks)}", f"{'':>11}{left}{between}{right}"]


def _labels(canvas: _Canvas) -> dict[int, str]:
    """Of y, by row: at the top, in the middle and at the bottom."""
    rows = (0, canvas.height // 2, canvas.height - 1)
    per_row = (canvas.high - canvas.low) / (canvas.height - 1)
    return dict(zip(rows, _alike([canvas.high - per_row * row for row in rows]), strict=True))


def _alike(values: Sequence[float]) -> list[str]:
    """The numbers of one axis in one form: all with an exponent, or with the same decimals, as
    many as their spread needs."""
    most, spread = max(map(abs, values)), max(values) - min(values)
    if most and not _PLAIN_FROM <= most < _PLAIN_UNTIL:
        return [f"{value:.3e}" if value else "0" for value in values]
    if not spread:
        return [f"{value:g}" for value in values]
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(spread)))
    words = [f"{value:.{decimals}f}" for value in values]
    while decimals and all(word.endswith("0") for word in words):
        words, decimals = [word[:-1].removesuffix(".") for word in words], decimals - 1
    return words


def _scaled(value: float, low: float, high: float, size: int) -> int:
    """The cell of `value` among `size` between `low` and `high`."""
    share = (value - low) / (high - low) if high > low else 0.0
    return min(size - 1, max(0, int(share * size)))
