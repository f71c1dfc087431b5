"""What a call may still do: its work ends with it, by the time, and by what was read.

Whatever reads a file of others block by block, searches or parses it asks `spend` before each
block; a thread can't be ended from outside. On a command line nothing is limited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from trainer_runtime.core.protocol.figures import size_text, spoken_duration
from trainmaster.errors.errors import StateError

if TYPE_CHECKING:
    from trainmaster.calls.shares import Shares


class Work:
    """The work of one call of `caller`. `within_s`: seconds from now, None: without a limit;
    `most_bytes`: that may be read. `shares`: what is shared with other calls of the server; None on
    a command line. `whole`: the work of which this is a part."""

    def __init__(
        self,
        caller: Hashable = "",
        *,
        within_s: float | None = None,
        most_bytes: int | None = None,
        shares: Shares | None = None,
        whole: Work | None = None,
    ) -> None:
        self.caller, self.shares = caller, shares
        self._whole = whole
        self._within_s = within_s
        self._until_s = None if within_s is None else time.monotonic() + within_s
        self._most_bytes, self._spent_bytes = most_bytes, 0
        self._over = threading.Event()

    def part(self) -> Work:
        """Work that can end before the whole, by whose time and bytes it is limited."""
        return Work(self.caller, shares=self.shares, whole=self)

    def end(self) -> None:
        """Whatever works on this finds out by its next `spend`."""
        self._over.set()

    def left_s(self) -> float | None:
        """How long the work may still take; None: without a limit."""
        if self._whole is not None:
            return self._whole.left_s()
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def spend(self, size_bytes: int = 0) -> None:
        """Count bytes that are read next; 0: check whether to continue.

        Raises:
            StateError: `READ_TOO_LONG`, the call has ended, or has used up its time or its bytes.
        """
        if self._over.is_set():
            raise too_long("The call that read this has ended.")
        if self._whole is not None:
            self._whole.spend(size_bytes)
        if self._until_s is not None and time.monotonic() > self._until_s:
            raise too_long(f"Reading took more than {spoken_duration(self._within_s or 0.0)}.")
        self._spent_bytes += size_bytes
        if self._most_bytes is not None and self._spent_bytes > self._most_bytes:
            raise too_long(f"More than {size_text(self._most_bytes)} would have to be read.")


_UNLIMITED = Work()
_current: ContextVar[Work] = ContextVar("work", default=_UNLIMITED)
_OF_LOGS = "Name a part of the file by cursor, or use the command in a shell, which has no limit."
_remedy: ContextVar[str] = ContextVar("remedy", default=_OF_LOGS)


def current_work() -> Work:
    """The work of the call that is under way here."""
    return _current.get()


def spend(size_bytes: int = 0) -> None:
    """`Work.spend` of the call that is under way here."""
    _current.get().spend(size_bytes)


@contextmanager
def working(work: Work) -> Iterator[None]:
    """Within, what is done here belongs to `work`, which ends with it."""
    token = _current.set(work)
    try:
        yield
    finally:
        work.end()
        _current.reset(token)


@contextmanager
def remedied(remedy: str) -> Iterator[None]:
    """Within, this is the remedy where reading takes too long."""
    token = _remedy.set(remedy)
    try:
        yield
    finally:
        _remedy.reset(token)


def too_long(message: str) -> StateError:
    """The error of a call that would read for too long; `message`: what was not read."""
    return StateError("READ_TOO_LONG", message, _remedy.get())
