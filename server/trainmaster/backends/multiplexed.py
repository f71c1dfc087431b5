"""Following any number of runs by one process on the machine, over one channel."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import lru_cache
from typing import Any

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
from trainmaster.words.errors import HostError

_MOST_BYTES = 8 << 20
_LEAST_BYTES = 128 << 10
# A scan is to take about so long, however slow the link: the next one brings the newest first.
_SCAN_S = 0.5
_SILENCE_S = 60.0
_RETRY_FAILED_S = 2.0
_READ_BYTES = 256 << 10
_LONGEST_HEADER_BYTES = 64 << 10
_NO_FOLDER = 126  # what runs it was taken away; it is put there again for the next follower
_FIRST_SIGNAL = 128  # exit codes from here on are a shell's words for a death by signal


class MultiplexedFollower:
    """The operator's side of `trainer_runtime follow`; polls where that can't be run.

    `folder` tells where a run lies on the host.
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
        while "scanned" not in (header := await self._next_header(frames)):
            data = await frames.exactly(self._length(header))
            received += len(data)
            self._take(header, data, news)
        took_s = time.monotonic() - began
        self._finish(header, placements, news)
        if took_s < _SCAN_S or self._skew_s is None:  # the longer it took, the less it tells
            self._skew_s = float(header["now"]) - (asked + took_s / 2)
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
        with suppress(HostError):  # a link that is lost needs no end
            await self._connection.aclose()
        self._frames = None

    async def _next_header(self, frames: _Frames) -> dict[str, Any]:
        line = await frames.line()
        if line is None:
            code, errors = await frames.stream.end()
            if self._scan == 1 and 0 < code < _FIRST_SIGNAL and code != _NO_FOLDER:
                raise _HelperUnusable
            raise link_lost(
                self._host.name, f"its follower ended with code {code}: {errors.strip()[-300:]}"
            )
        try:
            header = json.loads(line)
        except ValueError as error:
            raise _unreadable(self._host.name) from error
        if not isinstance(header, dict):
            raise _unreadable(self._host.name)
        return header

    def _length(self, header: Mapping[str, Any]) -> int:
        length = header.get("n")
        if not isinstance(length, int) or not 0 <= length <= LARGEST_WHOLE_BYTES:
            raise _unreadable(self._host.name)
        return length

    async def _request(self, placements: Mapping[str, Followed], news: News) -> dict[str, Any]:
        for run_id in [*self._runs]:
            followed = placements.get(run_id)
            if followed is None or followed.mirror != self._runs[run_id].writer.mirror:
                self._drop(run_id)
        request: dict[str, Any] = {"scan": self._scan, "limit": self._limit}
        added = {
            run_id: told
            for run_id in placements.keys() - self._runs.keys()
            if (told := await self._add(run_id, placements[run_id], news)) is not None
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
            told = {"folder": folder, "have": run.writer.cursors()}
        except OSError:
            self._fail(run_id, news)
            return None
        self._runs[run_id] = run
        return told

    def _drop(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._dropped.append(run_id)

    def _fail(self, run_id: str, news: News) -> None:
        """Begin with this run anew, from what its mirror holds then."""
        news.failed.add(run_id)
        self._drop(run_id)
        self._retry_t[run_id] = time.monotonic() + _RETRY_FAILED_S

    def _take(self, header: Mapping[str, Any], data: bytes, news: News) -> None:
        run_id, name = header.get("run"), header.get("file")
        if not isinstance(run_id, str) or not isinstance(name, str):
            raise _unreadable(self._host.name)
        run = self._runs.get(run_id)
        if run is None:
            return  # its mirror could not be written a moment ago
        try:
            for changed in run.take(name, header, data):
                news.note(run_id, changed)
        except OSError:
            self._fail(run_id, news)
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(self._host.name) from error

    def _finish(
        self, header: Mapping[str, Any], placements: Mapping[str, Followed], news: News
    ) -> None:
        if header["scanned"] != self._scan or not isinstance(header.get("now"), (int, float)):
            raise _unreadable(self._host.name)
        news.more = bool(header.get("more"))
        for run_id, run in [*self._runs.items()]:
            try:
                for changed in run.finish(over=placements[run_id].over, read_through=not news.more):
                    news.note(run_id, changed)
            except OSError:
                self._fail(run_id, news)


class _Run:
    """One run's mirror, and what may not be written to it yet."""

    def __init__(self, followed: Followed) -> None:
        self.writer = MirrorWriter(followed.mirror, followed.mask)
        self._held: dict[str, bytes] = {}
        self._newest_attempt = max(followed.mirror.attempts(), default=0)

    def take(self, name: str, header: Mapping[str, Any], data: bytes) -> list[str]:
        """Put a frame into the mirror; the names of the mirror's files that this has changed.

        Raises:
            OSError: the mirror can't be written, or the frame does not begin where it ends.
            KeyError, TypeError, ValueError: it is no frame.
        """
        if _is_appended(name):
            return self._append(name, header, data)
        if not is_replaced(name):
            raise ValueError(f"{name!r} is not followed")
        self.writer.replace(name, data, int(header["mtime_ns"]))
        return []

    def finish(self, *, over: bool, read_through: bool) -> list[str]:
        """At the end of a scan, write what was held back of files that will not go on."""
        changed = []
        for name in [*self._held] if read_through else ():
            if over or 0 < attempt_of(name) < self._newest_attempt:
                self.writer.append(name, self._held.pop(name), final=True)
                changed.append(name)
        self.writer.save()
        return changed

    def _append(self, name: str, header: Mapping[str, Any], data: bytes) -> list[str]:
        changed = []
        if "reset" in header:
            if held := self._held.pop(name, b""):
                self.writer.append(name, held, final=True)
            changed.append(self.writer.rotate(name, header.get("inode")) or name)
        elif "inode" in header:
            self.writer.set_inode(name, int(header["inode"]))
        held = self._held.pop(name, b"")
        if header["at"] != self.writer.size(name) + len(held):
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
    return link_lost(host_name, "its follower's answer can't be read")


_is_appended = lru_cache(maxsize=4096)(is_appended)
_attempt_of = lru_cache(maxsize=4096)(attempt_of)
