"""Answers and errors on their way out: one line of JSON for programs, text for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from trainer_runtime.core.protocol.text import cleaned
from trainmaster.errors.errors import TrainmasterError

if TYPE_CHECKING:
    from trainmaster.answers.base import Answer
    from trainmaster.answers.runs import LogAnswer
    from trainmaster.cli.views.blocks import Block, Grid

_LONGEST_CELL = 8000


def emit(answer: Answer, as_json: bool) -> None:
    """Print an answer: with `as_json` exactly its JSON, else what people see of it."""
    if as_json:
        from trainmaster.answers.base import ON_COMMAND_LINE

        print(answer.model_dump_json(context=ON_COMMAND_LINE), flush=True)
        return
    from trainmaster.cli.views.blocks import view

    blocks = view(answer.advising())
    if (lacking := getattr(answer, "incomplete", None)) is not None:
        blocks = [*blocks, f"Incomplete: {lacking}"]
    if is_for_a_person(sys.stdout):
        _print_rich(blocks)
    else:
        _print_plain(blocks)


def emit_lines(lines: Iterable[str]) -> None:
    """Print lines of a table for other programs."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()


def emit_log(answer: LogAnswer, as_json: bool, words: Callable[[str], str] | None = None) -> None:
    """Print log lines as they stand, or each in the `words` for people."""
    if as_json:
        emit(answer, as_json)
        return
    lines = answer.lines if words is None else map(words, answer.lines)
    sys.stdout.writelines(f"{cleaned(line, multiline=True)}\n" for line in lines)
    sys.stdout.flush()
    if answer.unreachable is not None:  # not among the lines: nobody has written it there
        print(f"Not reached: {printable(answer.unreachable)}", file=sys.stderr)
    if answer.incomplete is not None:
        print(f"Incomplete: {printable(answer.incomplete)}", file=sys.stderr)


def emit_error(error: TrainmasterError, as_json: bool) -> None:
    """Print an error: as JSON to stdout, for people to stderr."""
    if as_json:
        print(json.dumps({"error": error.to_dict()}, ensure_ascii=False, separators=(",", ":")))
    else:
        print(f"{error.code}: {error.message}\nFix: {error.remedy}", file=sys.stderr)


def is_for_a_person(stream: TextIO) -> bool:
    """Whether the stream takes colours and tables; see https://no-color.org."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor or hide a part of the text."""
    return "".join(
        character if character.isprintable() else " " for character in cleaned(text, _LONGEST_CELL)
    )


def _print_plain(blocks: Iterable[Block]) -> None:
    for block in blocks:
        for line in [printable(block)] if isinstance(block, str) else _plain_rows(block):
            print(line)


def _plain_rows(grid: Grid) -> Iterable[str]:
    rows = [[printable(cell) for cell in row] for row in (grid.columns, *grid.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _print_rich(blocks: Sequence[Block]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for block in blocks:
        # Text and not str: square brackets in a name are no markup. Commands stay in one piece, so
        # that they can be copied.
        if isinstance(block, str):
            console.print(Text(printable(block)), soft_wrap=True)
        else:
            console.print(_rich_table(block, console.width))


def _rich_table(grid: Grid, width: int) -> object:
    """What stands first names a row, and is typed elsewhere: it is folded last."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    names = max((len(row[0]) for row in grid.rows), default=0)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for at, column in enumerate(grid.columns):
        kept = at == 0 and names <= width * 2 // 3
        table.add_column(column, overflow="fold", no_wrap=kept)
    for row in grid.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
