"""Follows the runs of a cluster: their files, and beside them what Slurm says of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from trainmaster.backends.follower import Followed, Follower, News
from trainmaster.errors.errors import HostError

# How long a command that reads once waits for a controller: one that is down, `squeue` gives up
# after ten seconds. One that gave no answer before is waited for less.
_ANSWERS_WITHIN_S, _ANSWERS_AGAIN_WITHIN_S = 8.0, 3.0


class Asker(Protocol):
    """Who asks Slurm, and keeps the answers."""

    def is_due(self) -> bool:
        """Whether the last answer is old."""

    def has_begun(self, run_ids: Iterable[str]) -> bool:
        """Whether one of these, which were just heard of, has a job that waits by what is known."""

    def is_silent(self) -> bool:
        """Whether there was no answer the last time."""

    async def read_jobs(self, run_ids: Sequence[str]) -> None:
        """Ask for the runs' jobs; keeps the answer, or that there is none.

        Raises:
            HostError: there is none.
        """

    def note_silence(self, since_s: float) -> None:
        """Note that Slurm was asked for so many seconds in vain, where that is long."""


class JobsFollower:
    """Files never wait for a controller: it is asked in a task of its own."""

    def __init__(self, asker: Asker, files: Follower) -> None:
        self._asker = asker
        self._files = files
        self._asking: asyncio.Task[None] | None = None
        self._began_s = 0.0

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        news = await self._files.copy_new(placements)
        if self._asking is not None and self._asking.done():
            done, self._asking = self._asking, None
            done.result()
        is_due = self._asker.is_due() or self._asker.has_begun(news.changed)
        if self._asking is None and placements and is_due:
            self._began_s = time.monotonic()
            self._asking = asyncio.create_task(self._ask(list(placements)))
        return news

    async def settle(self) -> None:
        """Wait for an answer that is due, within bounds, once the files' news are taken in."""
        if self._asking is None:
            return
        bound_s = _ANSWERS_AGAIN_WITHIN_S if self._asker.is_silent() else _ANSWERS_WITHIN_S
        try:
            await asyncio.wait({self._asking}, timeout=bound_s)
        finally:
            if not self._asking.done():
                self._asker.note_silence(time.monotonic() - self._began_s)
            await self.abandon()

    async def abandon(self) -> None:
        """End what still asks.

        Raises:
            StorageError, sqlite3.Error: the home can't be used.
        """
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    async def _ask(self, run_ids: Sequence[str]) -> None:
        with suppress(HostError):  # a host that is away is noticed by its files
            await self._asker.read_jobs(run_ids)
