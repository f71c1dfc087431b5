"""Follows any number of runs by one process on the machine, over one channel."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.protocol.followed_files import (
    LARGEST_WHOLE_BYTES,
    attempt_of,
    is_appended,
    is_replaced,
)
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.hosts import Host, Stream
from trainmaster.backends.hosts.runtime_call import runtime_command
from trainmaster.backends.polled import PolledFollower
from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.store.mirror import MirrorWriter
from trainmaster.store.refusals import UnusableDataError
from trainmaster.words.errors import HostError

_MOST_BYTES = 8 << 20
_LEAST_BYTES = 128 << 10
# The target duration of a scan on a slow link: the next one brings the newest first.
_SCAN_S = 0.5
_SILENCE_S = 60.0
_RETRY_FAILED_S = 2.0
_READ_BYTES = 256 << 10
_LONGEST_HEADER_BYTES = 64 << 10
_NO_FOLDER = 126  # the runtime was removed; it is placed again for the next follower
_FIRST_SIGNAL = 128  # from here on, a shell's exit codes mean death by signal


class MultiplexedFollower:
    """The client of `trainer_runtime follow`; polls where that can't run.

    `folder` returns the folder of a run on the host.
    """

    def __init__(self, host: Host, folder: Callable[[str], Awaitable[str]]) -> None:
        self._host = host
        self._folder = folder
        self._connection = AsyncExitStack()
        self._frames: _Frames | None = None
        self._polled: PolledFollower | None = None
        self._runs: dict[str, _Run] = {}
        self._dropped: list[str] = []
        self._retry_t: dict[str, float] = {}
        self._scan = 0
        self._limit = _MOST_BYTES
        self._skew_s: float | None = None

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        if not placements and self._frames is None:
            return News()
        if self._polled is None:
            try:
                return await self._copy_by_helper(placements)
            except _HelperUnusable:
                await self._disconnect()
                self._polled = PolledFollower(self._host, self._folder)
        return await self._polled.copy_new(placements)

    async def close(self) -> None:
        await self._disconnect()

    async def _copy_by_helper(self, placements: Mapping[str, Followed]) -> News:
        frames = self._frames or await self._connect()
        news = News()
        self._scan += 1
        request = await self._request(placements, news)
        asked, began = time.time(), time.monotonic()
        await frames.ask(request)
        received = 0
        while "scanned" not in (header := await self._next_header(frames)).values:
            data = await frames.exactly(self._length(header))
            received += len(data)
            self._take(header, data, news)
        took_s = time.monotonic() - began
        now = self._finish(header, placements, news)
        if took_s < _SCAN_S or self._skew_s is None:  # the longer it took, the less precise
            self._skew_s = now - (asked + took_s / 2)
        news.skew_s = self._skew_s
        if received > _LEAST_BYTES:
            fitting = int(received / took_s * _SCAN_S)
            self._limit = max(_LEAST_BYTES, min(_MOST_BYTES, fitting))
        return news

    async def _connect(self) -> _Frames:
        try:
            command = runtime_command(await self._host.python(), "follow")
            running = self._host.stream(command, folder=await self._host.runtime())
            stream = await self._connection.enter_async_context(running)
        except HostError as error:
            if error.unreachable:  # polling would not reach its files either
                raise
            raise _HelperUnusable from error
        self._frames = _Frames(stream, self._host.name)
        return self._frames

    async def _disconnect(self) -> None:
        with suppress(HostError):  # a lost link has nothing to close
            await self._connection.aclose()
        self._frames = None

    async def _next_header(self, frames: _Frames) -> Fields:
        line = await frames.line()
        if line is None:
            code, errors = await frames.stream.end()
            if self._scan == 1 and 0 < code < _FIRST_SIGNAL and code != _NO_FOLDER:
                raise _HelperUnusable
            raise link_lost(
                self._host.name, f"its follower ended with code {code}: {errors.strip()[-300:]}"
            )
        try:
            return decode_fields(line, "header", max_bytes=_LONGEST_HEADER_BYTES)
        except DecodingError as error:
            raise _unreadable(self._host.name) from error

    def _length(self, header: Fields) -> int:
        try:
            length = header.integer("n")
        except DecodingError as error:
            raise _unreadable(self._host.name) from error
        if not 0 <= length <= LARGEST_WHOLE_BYTES:
            raise _unreadable(self._host.name)
        return length

    async def _request(self, placements: Mapping[str, Followed], news: News) -> dict[str, Any]:
        for run_id in [*self._runs]:
            followed = placements.get(run_id)
            if followed is None or followed.mirror != self._runs[run_id].writer.mirror:
                self._drop(run_id)
        request: dict[str, Any] = {"scan": self._scan, "limit": self._limit}
        added = {
            run_id: row
            for run_id in placements.keys() - self._runs.keys()
            if (row := await self._add(run_id, placements[run_id], news)) is not None
        }
        if added:
            request["add"] = added
        if self._dropped:
            request["drop"], self._dropped = self._dropped, []
        if over := [run_id for run_id in self._runs if placements[run_id].over]:
            request["over"] = over
        return request

    async def _add(self, run_id: str, followed: Followed, news: News) -> dict[str, Any] | None:
        if time.monotonic() < self._retry_t.get(run_id, 0.0):
            news.failed.add(run_id)
            return None
        folder = await self._folder(run_id)
        try:
            run = _Run(followed)
            row = {"folder": folder, "have": run.writer.cursors()}
        except OSError:
            self._fail(run_id, news)
            return None
        self._runs[run_id] = run
        return row

    def _drop(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._dropped.append(run_id)

    def _fail(self, run_id: str, news: News) -> None:
        """Restart this run from what its mirror holds."""
        news.failed.add(run_id)
        self._drop(run_id)
        self._retry_t[run_id] = time.monotonic() + _RETRY_FAILED_S

    def _take(self, header: Fields, data: bytes, news: News) -> None:
        try:
            run_id, name = header.text("run"), header.text("file")
        except DecodingError as error:
            raise _unreadable(self._host.name) from error
        run = self._runs.get(run_id)
        if run is None:
            return  # its mirror has just failed to write
        try:
            for changed in run.take(name, header, data):
                news.note(run_id, changed)
        except OSError:
            self._fail(run_id, news)
        except UnusableDataError as error:
            self._refuse(run_id, error, news)

    def _refuse(self, run_id: str, error: UnusableDataError, news: News) -> None:
        """Leave this run alone; its frames until the host knows that are dropped."""
        news.refused[run_id] = (error.code, error.reason)
        self._drop(run_id)

    def _finish(self, header: Fields, placements: Mapping[str, Followed], news: News) -> float:
        """The host's clock in Unix seconds."""
        try:
            scan, now = header.integer("scanned"), header.time("now")
            news.more = header.flag("more", False)
        except DecodingError as error:
            raise _unreadable(self._host.name) from error
        if scan != self._scan:
            raise _unreadable(self._host.name)
        for run_id, run in [*self._runs.items()]:
            try:
                for changed in run.finish(over=placements[run_id].over, read_through=not news.more):
                    news.note(run_id, changed)
            except OSError:
                self._fail(run_id, news)
            except UnusableDataError as error:
                self._refuse(run_id, error, news)
        return now


class _Run:
    """One run's mirror, and the bytes held back from it."""

    def __init__(self, followed: Followed) -> None:
        self.writer = MirrorWriter(followed.mirror, followed.mask, followed.limit_bytes)
        self._held: dict[str, bytes] = {}
        self._newest_attempt = max(followed.mirror.attempts(), default=0)

    def take(self, name: str, header: Fields, data: bytes) -> list[str]:
        """Put a frame into the mirror; the names of the mirror's files that this has changed.

        Raises:
            OSError: the mirror can't be written, or the frame does not begin where it ends.
            UnusableDataError: the header is not valid, or the mirror takes no more of this run.
        """
        try:
            if _is_appended(name):
                return self._append(name, _Frame.of(header), data)
            if is_replaced(name):
                self.writer.replace(name, data, header.integer("mtime_ns"))
                return []
        except DecodingError as error:
            raise UnusableDataError(
                f"a header of its host: {error.field} {error.problem}"
            ) from None
        raise UnusableDataError("its host sent a file that is not followed")

    def finish(self, *, over: bool, read_through: bool) -> list[str]:
        """At the end of a scan, write what was held back of files that will not grow."""
        changed = []
        for name in [*self._held] if read_through else ():
            if over or 0 < attempt_of(name) < self._newest_attempt:
                self.writer.append(name, self._held.pop(name), final=True)
                changed.append(name)
        self.writer.save()
        return changed

    def _append(self, name: str, frame: _Frame, data: bytes) -> list[str]:
        changed = []
        if frame.is_reset:
            if held := self._held.pop(name, b""):
                self.writer.append(name, held, final=True)
            changed.append(self.writer.rotate(name, frame.inode) or name)
        elif frame.inode is not None:
            self.writer.set_inode(name, frame.inode)
        held = self._held.pop(name, b"")
        if frame.at != self.writer.size(name) + len(held):
            raise OSError(f"{name} was read from another place than where its copy ends")
        self._newest_attempt = max(self._newest_attempt, _attempt_of(name))
        if data:
            data = held + data if held else data
            taken = self.writer.append(name, data, final=False)
            held = data[taken:]
            if taken:
                changed.append(name)
        if held:
            self._held[name] = held
        return changed


@dataclass(frozen=True, slots=True)
class _Frame:
    """The place of a frame's bytes: from `at` on, of the file with this inode, if that is new;
    `is_reset`: the original was replaced."""

    at: int
    inode: int | None
    is_reset: bool

    @classmethod
    def of(cls, header: Fields) -> _Frame:
        inode = header.values.get("inode")
        # File systems number inodes up to 2**64, which is more than `Fields` takes.
        known = inode if type(inode) is int and 0 <= inode < 2**64 else None
        return cls(header.integer("at"), known, "reset" in header.values)


class _Frames:
    """A stream as lines and raw bytes."""

    def __init__(self, stream: Stream, host_name: str) -> None:
        self.stream = stream
        self._host_name = host_name
        self._data = b""
        self._at = 0

    async def ask(self, request: Mapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(_SILENCE_S):
                await self.stream.write(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            raise link_lost(self._host_name, "it takes nothing any more") from None

    async def line(self) -> bytes | None:
        """The next line without its end; None where the output has ended before it."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            if len(self._data) - self._at > _LONGEST_HEADER_BYTES:
                raise _unreadable(self._host_name)
            more = await self._read()
            if not more:
                return None
            self._data, self._at = self._data[self._at :] + more, 0
        line, self._at = self._data[self._at : end], end + 1
        return line

    async def exactly(self, length: int) -> bytes:
        end = self._at + length
        if end <= len(self._data):
            data, self._at = self._data[self._at : end], end
            return data
        parts = [self._data[self._at :]]
        missing = length - len(parts[0])
        while missing > 0:
            more = await self._read()
            if not more:
                raise link_lost(self._host_name, "its follower ended in the middle of a file")
            parts.append(more[:missing])
            self._data, self._at = more, min(missing, len(more))
            missing -= len(more)
        return b"".join(parts)

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout(_SILENCE_S):
                return await self.stream.read(_READ_BYTES)
        except TimeoutError:
            raise link_lost(self._host_name, "it says nothing any more") from None


class _HelperUnusable(Exception):
    """The machine can't run the helper; its files may be read all the same."""


def _unreadable(host_name: str) -> HostError:
    return HostError(
        "HOST_DATA_REFUSED",
        f"What {host_name} sends about its runs is invalid or beyond the limits.",
        f"`trainmaster hosts check {host_name}`; its runs keep their last known state.",
        retryable=True,
    )


_is_appended = lru_cache(maxsize=4096)(is_appended)
_attempt_of = lru_cache(maxsize=4096)(attempt_of)
