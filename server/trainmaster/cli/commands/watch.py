"""`watch`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.completions import run_names
from trainmaster.cli.output import emit, emit_lines
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.watch import WatchAnswer
    from trainmaster.sync.workspace import Workspace


def watch(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="These; without: the open runs, and the newest.",
            autocompletion=run_names,
        ),
    ] = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.2, metavar="SECONDS", help="How often to redraw.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show a live table of runs: state, step, loss, time to go, findings, costs.

    q or Ctrl-C ends it. What is not a terminal gets the table once. Only reads.
    """
    if as_json or not _is_live():
        answer = ask(lambda workspace: _current_rows(workspace, runs or ()))
        if as_json:
            emit(answer, as_json)
            return
        from trainmaster.cli.views.watch import Layout, lines, takes_unicode

        emit_lines(lines(answer, Layout(unicode=takes_unicode(os.environ))))
        return
    from trainmaster.cli.live_table import show

    ask(lambda workspace: show(workspace, runs or (), every_s, os.environ), shows_progress=True)


def _is_live() -> bool:
    """Whether there is a terminal that can be redrawn, and a keyboard that can end it."""
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    return sys.stdout.isatty() and sys.stdin.isatty() and not is_dumb


async def _current_rows(workspace: Workspace, runs: list[str] | tuple[str, ...]) -> WatchAnswer:
    import asyncio

    from trainmaster.runs.events.watch import Watch
    from trainmaster.sync.follow import catch_up

    watched = Watch(workspace, runs)
    await asyncio.gather(*(catch_up(workspace, host) for host in watched.hosts))
    return watched.rows()
