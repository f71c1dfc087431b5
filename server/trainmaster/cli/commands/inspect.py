"""`inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Run
from trainmaster.cli.run_service import ask


def inspect(
    run: Run,
    allow_py_spy: Annotated[
        bool,
        typer.Option(
            "--allow-py-spy",
            help="Let py-spy read an attached training's process; it keeps running.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a run's processes execute. Distinguishes a hang from a slow step, and its cause."""
    from trainmaster.cli.views import inspection  # noqa: F401 (registers the view)
    from trainmaster.runs.inspect.inspect_run import inspect_run

    emit(ask(lambda workspace: inspect_run(workspace, run, allow_py_spy=allow_py_spy)), as_json)
