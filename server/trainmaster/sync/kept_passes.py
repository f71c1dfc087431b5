"""Passes that a process keeps from one call to the next, so that a call reads what has changed."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Protocol, TypeVar


class Continuable(Protocol):
    """Passes over a host (`sync.passes`). `is_whole`: the newest left nothing to do."""

    is_whole: bool

    def may_continue(self) -> bool:
        """Whether another call may continue with these."""


P = TypeVar("P", bound=Continuable)


class KeptPasses:
    """The passes of this process, by host.

    They count as long as no other process has held the host's follower lock: the lock's file holds
    the mark of the process that keeps passes, and one that takes the lock without them removes it.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16).encode()
        self._kept: dict[str, Continuable] = {}

    def take(self, host: str, lock: int, kind: type[P]) -> P | None:
        """Those of a host, for the holder of its lock; None where it has to make new ones.

        Raises:
            OSError: the lock's file can't be used.
        """
        passes = self._kept.pop(host, None)
        if isinstance(passes, kind) and self._is_marked(lock) and passes.may_continue():
            return passes
        forget_passes(lock)
        return None

    def keep(self, host: str, lock: int, passes: Continuable) -> None:
        """Keep what left nothing to do, while the lock is still held."""
        if not passes.is_whole:
            return
        with suppress(OSError):  # a full disk: the next call starts from the beginning
            if not self._is_marked(lock):
                os.pwrite(lock, self._mark, 0)
            self._kept[host] = passes

    def _is_marked(self, lock: int) -> bool:
        return os.pread(lock, len(self._mark) + 1, 0) == self._mark


def forget_passes(lock: int) -> None:
    """Note in a follower lock that its holder makes new passes: none that are kept count any more.

    Raises:
        OSError: the lock's file can't be used.
    """
    if os.fstat(lock).st_size:
        os.ftruncate(lock, 0)
