"""`board`."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.calls.ending import ends_in_time
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.sync.workspace import Workspace

_ENDED_BY = (signal.SIGINT, signal.SIGTERM)


def board(
    address: Annotated[
        str, typer.Option("--address", metavar="ADDRESS", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="At which port; 0: any free one.")
    ] = 0,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Listen also where others can reach it, without encryption."
        ),
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name", metavar="NAME", help="A name that readers call it by. Repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a page with runs, live curves, findings, hosts and costs.

    Prints its address, which holds a token. Ctrl-C ends it. Only reads.
    """
    import asyncio

    from trainmaster.board.serve import Board, Listening
    from trainmaster.serving.log import log_to_stderr

    log_to_stderr()

    async def serve(workspace: Workspace) -> None:
        listening = Listening(address, port, allow_remote, tuple(host_name or ()))
        served, loop = Board(workspace, listening), asyncio.get_running_loop()
        for number in _ENDED_BY:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(served.end))
        _announce(served.url, as_json)
        await served.serve()
        begin_end()

    with ends_in_time(*_ENDED_BY) as begin_end:
        ask(serve, shows_progress=True)


def _announce(url: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"url": url}), flush=True)
        return
    print(url, flush=True)
    print("Open it in a browser. It is for you alone; Ctrl-C ends it.", file=sys.stderr)
