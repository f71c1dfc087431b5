"""Draws the output of `trainmaster demo` as a terminal in SVG.

trainmaster demo | python scripts/render_demo.py docs/demo.svg
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path

_CELL_W, _LINE_H, _MARGIN, _TOP = 8.0, 18.0, 20.0, 52.0
_COLUMNS = 104
_PROGRESS_KEPT = 4
_FIRST_BRAILLE = 0x2800
# Bit of a braille character to the column and row of its dot.
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
_COLOURS = (
    (re.compile(r"\$ |Done|Resumed|held-out"), "#7ee787"),
    (re.compile(r"Killed"), "#ff7b72"),
    (re.compile(r"running|preparing"), "#8b949e"),
)


def main() -> None:
    """Read the output from stdin; the arguments are the picture's path and the demo's options."""
    path, *options = sys.argv[1:]
    command = " ".join(["$ trainmaster demo", *options])
    Path(path).write_text(picture([command, *excerpt(sys.stdin.read().splitlines())]))


def excerpt(lines: Iterable[str]) -> Iterator[str]:
    """The demo without its spec, sample and paths, and with few of its lines of progress."""
    kept = False
    for progress, group in groupby(lines, key=lambda line: line.startswith("running")):
        if progress:
            yield from _some(list(group))
            continue
        for line in group:
            kept = line.startswith(("Launched", "Killed", "Resumed", "loss over", "held-out")) or (
                kept and re.match(r"\s+(\S+ )?[┤└]|\s+1\s+\d+$", line) is not None
            )
            if kept:
                yield from ("", line) if line[0].isalpha() else (line,)
                if line.startswith(("Launched", "Killed")):
                    yield ""


def picture(lines: list[str]) -> str:
    """The lines as an SVG image of a terminal."""
    width = _COLUMNS * _CELL_W + 2 * _MARGIN
    height = _TOP + len(lines) * _LINE_H + _MARGIN / 2
    body = "\n".join(_line(text, _TOP + row * _LINE_H) for row, text in enumerate(lines) if text)
    buttons = "".join(
        f'<circle cx="{22 + 20 * index}" cy="20" r="6" fill="{colour}"/>'
        for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        'font-family="ui-monospace,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="13">\n'
        f'<rect width="{width:g}" height="{height:g}" rx="10" fill="#0d1117"/>{buttons}\n'
        f"{body}\n</svg>\n"
    )


def _some(lines: list[str]) -> list[str]:
    """A few of the lines, evenly spread, the last of them included."""
    stride = max(1, len(lines) // _PROGRESS_KEPT)
    return lines[::-1][::stride][:_PROGRESS_KEPT][::-1]


def _line(text: str, y: float) -> str:
    """A line: characters at fixed columns, dots of braille characters as one path."""
    colour = next((colour for start, colour in _COLOURS if start.match(text)), "#e6edf3")
    plain = "".join(" " if _is_braille(one) else one for one in text).rstrip()
    length = len(plain) * _CELL_W
    drawn = (
        f'<text x="{_MARGIN:g}" y="{y:g}" fill="{colour}" textLength="{length:g}" '
        f'xml:space="preserve">{escape(plain)}</text>'
    )
    dots = "".join(
        f"M{x:g} {dot_y:g}h0"
        for column, one in enumerate(text)
        if _is_braille(one)
        for x, dot_y in _dots(ord(one) - _FIRST_BRAILLE, _MARGIN + column * _CELL_W, y)
    )
    if dots:
        drawn += f'<path d="{dots}" stroke="#58a6ff" stroke-width="2.6" stroke-linecap="round"/>'
    return drawn


def _is_braille(one: str) -> bool:
    return _FIRST_BRAILLE <= ord(one) < _FIRST_BRAILLE + 256


def _dots(bits: int, x: float, y: float) -> Iterator[tuple[float, float]]:
    for bit, (column, row) in enumerate(_DOTS):
        if bits >> bit & 1:
            yield x + _CELL_W * (0.25 + 0.5 * column), y - 13 + _LINE_H * (0.125 + 0.25 * row)


if __name__ == "__main__":
    main()
