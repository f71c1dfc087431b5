"""`trust`: a person's word on code that specs bring to this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.confirm import Yes, asking
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask


def trust(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="An interpreter, script or requirements file; a folder of wheels, a venv.",
        ),
    ],
    confirmed: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let agents' specs run this code on this machine, until its content changes."""
    from trainmaster.runs.planning.trusted_code import trust_path

    confirm = asking(confirmed, as_json)
    emit(ask(lambda workspace: trust_path(workspace, path, confirm)), as_json)
