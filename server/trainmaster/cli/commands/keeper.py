"""`keeper` and its commands."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trainmaster.cli.acting import acts
from trainmaster.cli.commands.maintenance import show
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

keeper = typer.Typer(
    help="Run `tick` on a timer: by the user's systemd, or cron. Shows its status.",
    rich_markup_mode=None,
    add_completion=False,
)


@keeper.callback(invoke_without_command=True)
def show_status(context: typer.Context, as_json: AsJson = False) -> None:
    """Run `tick` on a timer: by the user's systemd, or cron. Shows its status."""
    if context.invoked_subcommand is None:
        status(as_json)


@keeper.command()
@acts("keeper install")
def install(
    every: Annotated[
        str, typer.Option("--every", metavar="5m", help="1m to 1h, at even distances.")
    ] = "5m",
    only_print: Annotated[
        bool, typer.Option("--print", help="Write nothing; show it, to be put there by hand.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Install the keeper of this home. Shows what it wrote and where; may be repeated."""
    from trainmaster.keeper import service

    call = service.text if only_print else service.install
    show(ask(lambda workspace: call(workspace, os.environ, every=every)), as_json)


@keeper.command()
@acts("keeper remove")
def remove(as_json: AsJson = False) -> None:
    """Remove the keeper of this home, and nothing else."""
    from trainmaster.keeper import service

    show(ask(lambda workspace: service.remove(workspace, os.environ)), as_json)


@keeper.command()
def status(as_json: AsJson = False) -> None:
    """Show whether a keeper is installed, when it last ran, and whether it is overdue."""
    from trainmaster.keeper import service

    show(ask(lambda workspace: service.status(workspace, os.environ)), as_json)
