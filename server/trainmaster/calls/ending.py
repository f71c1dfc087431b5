"""The end of a server: by a signal or by itself, within a bound whatever is running."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

# What runs is cancelled; a read of a disk that doesn't answer, or a database that another process
# holds, can't be. Every process may be killed at any moment, so this one may end itself.
LONGEST_END_S = 4.0
_BEGINS = b"\0"
_SWITCH_S = 0.001


@contextmanager
def ends_in_time(*signals: int, code: int = 0) -> Iterator[Callable[[], None]]:
    """Within, this process ends with `code` at most 4 s after one of the signals, or after the call
    that is given. For the main thread.

    The kernel's side of the signal starts the clock: Python's waits for the main thread, which may
    be what doesn't end.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    ending = threading.Thread(target=_watch, args=(reading, {*signals, 0}, code), daemon=True)
    ending.start()
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield lambda: _begin(writing)
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)


def run_server(serve: Coroutine[Any, Any, None]) -> None:
    """Serve in an event loop. The process is ended in time by SIGTERM and SIGINT, and where the
    server has ended by itself."""
    import asyncio

    # What reads in a thread leaves the interpreter to other calls this often.
    sys.setswitchinterval(_SWITCH_S)
    with ends_in_time(signal.SIGTERM, signal.SIGINT) as begin_end:

        async def served() -> None:
            await serve
            begin_end()

        asyncio.run(served())


def _begin(writing: int) -> None:
    os.write(writing, _BEGINS)


def _watch(reading: int, signals: set[int], code: int) -> None:
    """Wait for a signal, and then for the end of what was to end by it."""
    while data := os.read(reading, 64):
        if signals.intersection(data):
            timer = threading.Timer(LONGEST_END_S, os._exit, (code,))
            timer.daemon = True
            timer.start()
            return
    os.close(reading)
