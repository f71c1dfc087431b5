"""`attach`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, IdempotencyKey, Pattern, pattern_text
from trainmaster.cli.run_service import ask


def attach(
    *,
    host: Annotated[str, typer.Option("--host", help="Where it runs.")] = "local",
    log: Annotated[
        str | None, typer.Option("--log", metavar="PATH", help="The log that it writes.")
    ] = None,
    tmux: Annotated[
        str | None,
        typer.Option(
            "--tmux",
            metavar="TARGET",
            help="Its session, window or pane of tmux; SOCKET/TARGET of `tmux -L SOCKET`.",
        ),
    ] = None,
    screen: Annotated[
        str | None,
        typer.Option("--screen", metavar="NAME[:WINDOW]", help="Its session of screen."),
    ] = None,
    pid: Annotated[
        str | None, typer.Option("--pid", metavar="PID", help="Its process: the log is found.")
    ] = None,
    start: Annotated[
        str,
        typer.Option("--from", metavar="start|end", help="The log's start, or only new lines."),
    ] = "start",
    name: Annotated[
        str | None, typer.Option("--name", help="What the run is to be called.")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Repeatable.")
    ] = None,
    ends_after: Annotated[
        str | None,
        typer.Option(
            "--ends-after",
            metavar="15m",
            help="How long a log may be silent that nobody is seen to write.",
        ),
    ] = None,
    pattern: Pattern = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Follow a training that somebody else started: it is watched, never touched."""
    from trainmaster.runs.attach import AttachOptions
    from trainmaster.runs.attach import attach as service

    options = AttachOptions(
        log=log,
        tmux=tmux,
        screen=screen,
        pid=pid,
        start=start,
        name=name,
        labels=labels or (),
        ends_after=ends_after,
        pattern=pattern_text(pattern),
    )
    emit(
        ask(lambda workspace: service(workspace, host, options, idempotency_key=idempotency_key)),
        as_json,
    )
