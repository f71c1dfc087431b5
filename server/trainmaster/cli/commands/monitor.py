"""`monitor`."""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.completions import run_names
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.monitor import MonitorEvent
    from trainmaster.sync.workspace import Workspace


def monitor(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="These, until all have ended; without: all runs.",
            autocompletion=run_names,
        ),
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Who listens; each name gets every event."),
    ] = "default",
    as_json: AsJson = False,
) -> None:
    """Print a line for each event: findings, states, ends, lost hosts, leases that end.

    Each event comes once under a name, also after kill -9: a later call prints what has happened
    since the last one ended. The first one begins now. Only reads. Ends by SIGTERM, or when nobody
    reads its output any more.
    """
    import asyncio
    import signal

    from trainmaster.runs.monitor.monitor import monitor as service

    output = sys.stdout.fileno()

    async def report(event: MonitorEvent) -> None:
        await _until_writable(output)
        _write(output, _line(event, as_json))

    async def listen(workspace: Workspace) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await service(
            workspace, runs or (), name=name, report=report, is_heard=lambda: _is_read(output)
        )

    try:
        ask(listen, shows_progress=True, whole=True)
    except (BrokenPipeError, asyncio.CancelledError):
        return


def _line(event: MonitorEvent, as_json: bool) -> str:
    if as_json:
        from trainmaster.answers.base import ON_COMMAND_LINE

        return event.model_dump_json(context=ON_COMMAND_LINE)
    from trainmaster.cli.views.monitor import line

    return line(event.advising())


async def _until_writable(output: int) -> None:
    """A reader may be slow; meanwhile signals are heard, and hosts followed."""
    import asyncio

    writable, loop = asyncio.Event(), asyncio.get_running_loop()
    if _is_ready(output, select.POLLOUT):
        return
    loop.add_writer(output, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(output)


def _write(output: int, line: str) -> None:
    """A line in one piece and unbuffered: an event counts as reported when its line is out.

    Raises: BrokenPipeError: nobody reads it.
    """
    left = f"{line}\n".encode(errors="replace")
    while left:
        try:
            left = left[os.write(output, left) :]
        except BlockingIOError:  # another program's setting of a pipe that both have
            select.select([], [output], [])


def _is_read(output: int) -> bool:
    """False where the other end of a pipe, socket or terminal is closed."""
    return not _is_ready(output, 0)


def _is_ready(output: int, wanted: int) -> bool:
    """Whether the descriptor is ready for that, or its other end is closed."""
    polled = select.poll()
    polled.register(output, wanted)
    return any(event & (wanted | select.POLLERR | select.POLLHUP) for _, event in polled.poll(0))
