"""`log`: what Trainmaster did."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask


def log(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only what acted on this run.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest calls.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what Trainmaster did: each call that acted, by whom, on what, with what outcome."""
    from trainmaster.cli.views import action_log  # noqa: F401 (it registers the view)
    from trainmaster.runs.action_log import list_actions

    emit(ask(lambda workspace: list_actions(workspace, run=run, limit=limit)), as_json)
