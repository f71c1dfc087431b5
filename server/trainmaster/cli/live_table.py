"""The table of `watch` on a terminal, redrawn in place until q or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from trainmaster.answers.watch import WatchAnswer
from trainmaster.cli.views.watch import Layout, lines, takes_unicode
from trainmaster.runs.events.watch import Watch
from trainmaster.sync.followed_hosts import FollowedHosts
from trainmaster.sync.workspace import Workspace

_HINT = "q ends"


async def show(
    workspace: Workspace, runs: Sequence[str], every_s: float, environment: Mapping[str, str]
) -> None:
    """Show the runs until q, Ctrl-C or SIGTERM; the terminal is then as before.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    watched, ended = Watch(workspace, runs), asyncio.Event()
    followed, console = FollowedHosts(workspace), Console(highlight=False)
    has_unicode = takes_unicode(environment)
    with (
        _until_a_key(ended),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        try:
            while not ended.is_set():
                await followed.follow(watched.hosts)
                live.update(_drawn(watched.rows(), console, unicode=has_unicode), refresh=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), every_s)
        finally:
            await followed.follow(())


def _drawn(answer: WatchAnswer, console: Console, *, unicode: bool) -> Text:
    """The table in the terminal's size, which may have changed."""
    width, height = console.size
    table = lines(answer, Layout(width, height - 1, unicode))
    return Text("\n".join([*table, _HINT[:width]]), no_wrap=True, overflow="crop")


@contextmanager
def _until_a_key(ended: asyncio.Event) -> Iterator[None]:
    """Inside, keys are read as they are typed and not shown; q, Ctrl-C and SIGTERM set `ended`."""
    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        typed = os.read(keyboard, 1024)
        if not typed or b"q" in typed.lower():  # nothing: the terminal is gone
            ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    try:
        tty.setcbreak(keyboard)
        loop.add_reader(keyboard, read)
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
