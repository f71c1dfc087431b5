"""`data` and its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Run
from trainmaster.cli.run_service import ask

data = typer.Typer(
    help="Inspect data before a plan, and show what a run was trained on.",
    rich_markup_mode=None,
    add_completion=False,
)


@data.callback()
def _of_data() -> None:
    """Inspect data before a plan, and show what a run was trained on."""


@data.command()
def inspect(
    named: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|PATH",
            help="A spec (*.yaml, or its text), a file or folder of data, or hf://OWNER/NAME.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show what data is: formats, rows, fields, tokens, languages, duplicates, odd bytes,
    examples, and which methods can learn from it. Reads a sample; changes nothing."""
    from trainmaster.runs.data.inspect_data import inspect_data

    emit(ask(lambda workspace: inspect_data(workspace, named)), as_json)


@data.command()
def card(run: Run, as_json: AsJson = False) -> None:
    """Show a run's data card: sources, licences, digests, documents, tokens, mix, and rows that
    were left out. The run's folder has it as data_card.md and data_card.json."""
    from trainmaster.runs.data.data_card import data_card

    emit(ask(lambda workspace: data_card(workspace, run)), as_json)
