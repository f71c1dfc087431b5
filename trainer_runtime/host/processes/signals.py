"""Signals that a parent collects and passes on, and an end by a signal."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_FORWARDED = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """The signals that came and were not taken yet; one that comes ends a `wait`."""

    def __init__(self, wakeup: int) -> None:
        self._wakeup = wakeup
        self._received: list[signal.Signals] = []

    def receive(self, number: int, frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))

    def take(self) -> list[signal.Signals]:
        received, self._received = self._received, []
        return received

    def wait(self, descriptors: Sequence[int], within_s: float) -> None:
        """Wait until a signal comes or one of the descriptors becomes readable."""
        poll = select.poll()
        for descriptor in (self._wakeup, *descriptors):
            poll.register(descriptor, select.POLLIN)
        if not self._received:
            poll.poll(within_s * 1000)
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)


@contextmanager
def received() -> Iterator[Signals]:
    """Collects SIGTERM and SIGINT, which then end nothing."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signals = Signals(reader)
    # SIGCHLD announces a launcher's end, whose handler need not do anything.
    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        **dict.fromkeys(_FORWARDED, signals.receive),
        signal.SIGCHLD: lambda number, frame: None,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.set_wakeup_fd(writer)
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def die_by(number: int) -> None:
    """End by a signal, as the process did that this one stands for; without a core file."""
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
