"""`plot`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.output import emit, is_for_a_person, printable
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask
from trainmaster.home.user_paths import user_path

if TYPE_CHECKING:
    from trainmaster.metrics.plots.sketch import Line

_COLOURS = ("blue", "red", "green", "magenta", "yellow", "cyan")
_LEAST_WIDTH, _MOST_WIDTH = 32, 120
_SCALE_WIDTH = 12


def plot(
    compared: Annotated[
        list[str], typer.Argument(metavar="RUN|FILE...", help="Runs, or log files of any training.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.png", help="Draw a picture into this file."),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Only this metric. Repeatable.")
    ] = None,
    axis: Annotated[
        str, typer.Option("--x", metavar="step|tokens|time", help="What the curves run over.")
    ] = "step",
    as_json: AsJson = False,
) -> None:
    """Draw the curves of runs or logs: into a PNG, or without -o into the terminal."""
    from trainmaster.answers.plot import as_axis
    from trainmaster.runs.metrics.plot import plot_runs, sketch_runs

    along = as_axis(axis)
    if output is not None:
        path = user_path(output, "--output")
        emit(
            ask(lambda workspace: plot_runs(workspace, compared, path, keys=key or (), axis=along)),
            as_json,
        )
        return
    colourful = is_for_a_person(sys.stdout) and not as_json
    answer, lines = ask(
        lambda workspace: sketch_runs(
            workspace, compared, keys=key or (), axis=along, dots=colourful, width=width()
        )
    )
    if colourful:
        _print_coloured(lines)
    else:
        emit(answer, as_json)


def width() -> int:
    """Characters of a curve in this terminal."""
    columns = shutil.get_terminal_size((80, 24)).columns
    return max(_LEAST_WIDTH, min(_MOST_WIDTH, columns - _SCALE_WIDTH))


def _print_coloured(lines: Sequence[Line]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        text = Text()
        for span in line:
            colour = "" if span.curve is None else _COLOURS[span.curve % len(_COLOURS)]
            text.append(printable(span.text), style=colour)
        console.print(text, soft_wrap=True)
