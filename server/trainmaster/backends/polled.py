"""Follows by polling file sizes: needs nothing of the machine but its files."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.files.compacted import (
    LARGEST_ARCHIVE_BYTES,
    archive_of,
    fill_holes,
    regions_with_holes,
    unpack,
)
from trainer_runtime.core.protocol.followed_files import (
    APPENDED_IN_ATTEMPT,
    EVENTS,
    JOURNAL,
    LARGEST_WHOLE_BYTES,
    MOST_ATTEMPTS,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
    WHOLE_EVERY_S,
)
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.hosts import Host
from trainmaster.store.mirror_writer import MirrorWriter
from trainmaster.store.refusals import UnusableDataError

_CHUNK_BYTES = 8 << 20
# The longest that the journal waits for logs older than it to be read.
_LONGEST_WAIT_S = 5.0
_RUNS_AT_A_TIME = 4
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class PolledFollower:
    """Detects a truncated file by its length, a regrown one by the bytes before the cursor.

    `folder` returns the folder of a run on the host. What the host replaces is read again after
    `whole_every_s` at the soonest, and at the run's end. Where each copy ends is read once for a
    `Followed`, whose caller holds the host's lock or knows that no other process had it since.
    """

    def __init__(
        self,
        host: Host,
        folder: Callable[[str], Awaitable[str]],
        *,
        whole_every_s: float = WHOLE_EVERY_S,
    ) -> None:
        self._host = host
        self._whole_every_s = whole_every_s
        self._folder = folder
        self._waits_since: dict[str, float] = {}
        self._known: dict[str, _Known] = {}

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        news = News()
        self._known = {
            run_id: known_run for run_id, known_run in self._known.items() if run_id in placements
        }
        left = iter(placements.items())
        copies = [
            asyncio.create_task(self._copy_some(left, news))
            for _ in range(min(_RUNS_AT_A_TIME, len(placements)))
        ]
        try:
            await asyncio.gather(*copies)  # the first that fails ends the others
        finally:
            for task in copies:
                task.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
        return news

    async def close(self) -> None:
        return

    async def _copy_some(self, left: Iterator[tuple[str, Followed]], news: News) -> None:
        """Copy one run after the other, beside others that take from the same ones."""
        for run_id, followed in left:
            await asyncio.sleep(0)  # files of this machine are read without waiting for anything
            known_run = self._known.pop(run_id, None)
            try:
                if known_run is None or known_run.followed is not followed:
                    known_run = _Known(followed, await self._folder(run_id), followed.writer())
                await self._copy_run(run_id, known_run, news)
            except OSError:
                news.failed.add(run_id)
            except UnusableDataError as error:
                news.refused[run_id] = (error.code, error.reason)
            else:
                self._known[run_id] = known_run

    async def _copy_run(self, run_id: str, known_run: _Known, news: News) -> None:
        """Copy the journal last, up to its size before the other files were read."""
        copy, followed = _Copy(self._host, run_id, known_run, news), known_run.followed
        journal_end = await self._host.size(f"{copy.folder}/{JOURNAL}")
        names = await self._host.names(f"{copy.folder}/attempts")
        numbers = sorted(int(name) for name in names if _NUMBER.fullmatch(name))
        if len(numbers) > MOST_ATTEMPTS:
            raise UnusableDataError(f"it has more than {MOST_ATTEMPTS} attempts")
        events_whole = logs_whole = True
        for number in numbers:
            final = followed.over or number != numbers[-1]
            for name in APPENDED_IN_ATTEMPT:
                whole = await copy.appended(f"attempts/{number}/{name}", final=final)
                events_whole &= whole or name != EVENTS
                logs_whole &= whole
            for name in REPLACED_IN_ATTEMPT:
                if copy.writer.size(f"attempts/{number}/{name}") == 0:  # written once
                    await copy.whole(f"attempts/{number}/{name}")
        if journal_end is not None and events_whole and self._may_copy_journal(run_id, logs_whole):
            await copy.appended(JOURNAL, final=followed.over, end=journal_end)
        now = time.monotonic()
        if followed.over or (run_id in news.changed and now >= known_run.wholes_due):
            for name in REPLACED_IN_RUN:
                await copy.whole(name)
            known_run.wholes_due = now + self._whole_every_s
        news.more |= not logs_whole and not copy.ended_early

    def _may_copy_journal(self, run_id: str, logs_whole: bool) -> bool:
        """Whether the journal may be copied: it records the ends of attempts."""
        if logs_whole:
            self._waits_since.pop(run_id, None)
            return True
        since = self._waits_since.setdefault(run_id, time.monotonic())
        return time.monotonic() - since > _LONGEST_WAIT_S


@dataclass(slots=True)
class _Known:
    """A run that is followed; `writer` knows where its copies end, `replaced` holds a hash of each
    file that was copied as a whole; `wholes_due`: when to copy the run's again, monotonic."""

    followed: Followed
    folder: str
    writer: MirrorWriter
    replaced: dict[str, int] = field(default_factory=dict)
    wholes_due: float = 0.0


class _Copy:
    """One pass over one run."""

    def __init__(self, host: Host, run_id: str, known_run: _Known, news: News) -> None:
        self.folder = known_run.folder
        self.writer = known_run.writer
        self._replaced = known_run.replaced
        self._host = host
        self._run_id = run_id
        self._news = news
        self.ended_early = False  # a file gave less than its size promises: no reason to hurry

    async def appended(self, name: str, *, final: bool, end: int | None = None) -> bool:
        """Copy what follows the mirror's end; whether nothing is left.

        A possible beginning of a secret is left to the next pass, except in a `final` file.

        Raises:
            OSError: it can't be written, or another process has written to the copy.
        """
        size = await self._host.size(f"{self.folder}/{name}") if end is None else end
        if size is None:
            return True
        if size < self.writer.size(name):
            self._rotate(name)
        begin = self.writer.size(name)
        if size <= begin:
            return True
        if self.writer.mirror.size(name) != begin:
            raise OSError(f"the copy of {name} has another length than this process gave it")
        asked = min(_CHUNK_BYTES, size - begin)
        data = await self._beyond(name, begin, asked)
        if data is None:
            self._rotate(name)
            begin, asked = 0, min(_CHUNK_BYTES, size)
            data = await self._beyond(name, 0, asked) or b""
        self.ended_early |= len(data) < asked
        whole = not data or begin + len(data) >= size
        if self.writer.append(name, data, final=final and whole):
            self._news.note(self._run_id, name)
        return whole

    async def whole(self, name: str) -> None:
        data = await self._host.read(f"{self.folder}/{name}", 0, LARGEST_WHOLE_BYTES)
        if data and self._replaced.get(name) != hash(data):
            self.writer.replace(name, data)
            self._replaced[name] = hash(data)

    async def _beyond(self, name: str, begin: int, length: int) -> bytes | None:
        """The original from `begin` on; None where it no longer holds the copied bytes."""
        tail = self.writer.tail(name)
        path = f"{self.folder}/{name}"
        data = await self._read(path, begin - len(tail), len(tail) + length)
        return data[len(tail) :] if data.startswith(tail) else None

    async def _read(self, path: str, offset: int, length: int) -> bytes:
        """As the follower on the host reads it: with what was compressed there."""
        data, regions = await self._host.read(path, offset, length), {}
        for begin in regions_with_holes(offset, data):
            packed = await self._host.read(archive_of(path, begin), 0, LARGEST_ARCHIVE_BYTES)
            region = unpack(packed)
            if region is not None:
                regions[begin] = region
        return fill_holes(offset, data, regions) if regions else data

    def _rotate(self, name: str) -> None:
        put_aside = self.writer.rotate(name, None)
        self._news.note(self._run_id, put_aside or name)
