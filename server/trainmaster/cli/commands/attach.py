"""`attach`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, IdempotencyKey, Pattern, pattern_text
from trainmaster.cli.run_service import ask

Where = Annotated[str, typer.Option("--host", help="Where it runs.")]
Log = Annotated[str | None, typer.Option("--log", metavar="PATH", help="The log that it writes.")]
Tmux = Annotated[
    str | None,
    typer.Option(
        "--tmux",
        metavar="TARGET",
        help="Its session, window or pane of tmux; SOCKET/TARGET of `tmux -L SOCKET`.",
    ),
]
Screen = Annotated[
    str | None,
    typer.Option("--screen", metavar="NAME[:WINDOW]", help="Its session of screen."),
]
Pid = Annotated[
    str | None, typer.Option("--pid", metavar="PID", help="Its process: the log is found.")
]
Start = Annotated[
    str,
    typer.Option("--from", metavar="start|end", help="The log's start, or only new lines."),
]
Name = Annotated[str | None, typer.Option("--name", help="What the run is to be called.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Repeatable.")
]
EndsAfter = Annotated[
    str | None,
    typer.Option(
        "--ends-after",
        metavar="15m",
        help="How long a log may be silent that nobody is seen to write.",
    ),
]


def attach(
    *,
    host: Where = "local",
    log: Log = None,
    tmux: Tmux = None,
    screen: Screen = None,
    pid: Pid = None,
    start: Start = "start",
    name: Name = None,
    labels: Labels = None,
    ends_after: EndsAfter = None,
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
