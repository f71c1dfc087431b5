"""Signals of the trainer that ask for a save and an end; what answers SIGUSR2 is stacks.py's."""

from __future__ import annotations

import signal
from types import FrameType


class StopSignal:
    """True once SIGTERM or SIGINT came. A second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self._received: int | None = None

    def install(self) -> None:
        """Takes over the signals; for the main thread."""
        signal.signal(signal.SIGTERM, self._receive)
        signal.signal(signal.SIGINT, self._receive)

    def ignore(self) -> None:
        """From here on they change nothing: what has come to its end in order ends in order, though
        the interpreter, which takes any handler back first, may need seconds for that."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __bool__(self) -> bool:
        return self._received is not None

    @property
    def name(self) -> str:
        return signal.Signals(self._received).name if self._received is not None else ""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
