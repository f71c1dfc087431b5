"""Follows any number of runs by one process on the machine, over one channel."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import lru_cache
from typing import Any

from trainer_runtime.core.decoding import DecodingError, Fields
from trainer_runtime.core.protocol.followed_files import attempt_of, is_appended, is_replaced
from trainmaster.backends.follow_stream import FollowStream, Frame, unreadable
from trainmaster.backends.follower import Followed, News
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import runtime_command
from trainmaster.backends.polled import PolledFollower
from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.errors.errors import HostError
from trainmaster.store.mirror import OpenFiles
from trainmaster.store.refusals import UnusableDataError
from trainmaster.store.secrets_folder import SecretsFolder

_MOST_BYTES = 8 << 20
_LEAST_BYTES = 128 << 10
# The target duration of a scan on a slow link: the next one brings the newest first.
_SCAN_S = 0.5
_RETRY_FAILED_S = 2.0
_NO_FOLDER = 126  # the runtime was removed; it is placed again for the next follower
_FIRST_SIGNAL = 128  # from here on, a shell's exit codes mean death by signal


class MultiplexedFollower:
    """The client of `trainer_runtime follow`; polls where that can't run.

    `folder` returns the folder of a run on the host. A run without news costs a scan nothing here.
    """

    def __init__(self, host: Host, folder: Callable[[str], Awaitable[str]]) -> None:
        self._host = host
        self._folder = folder
        self._connection = AsyncExitStack()
        self._stream: FollowStream | None = None
        self._polled: PolledFollower | None = None
        self._runs: dict[str, _Run] = {}
        self._files = OpenFiles()
        self._secrets: SecretsFolder | None = None
        self._dropped: list[str] = []
        # The placements that the host was asked for, where it follows exactly these.
        self._asked: Mapping[str, Followed] | None = None
        self._over: list[str] = []
        self._unfinished: set[str] = set()
        self._retry_t: dict[str, float] = {}
        self._scan = 0
        self._limit = _MOST_BYTES
        self._skew_s: float | None = None

    async def copy_new(self, placements: Mapping[str, Followed]) -> News:
        if not placements and self._stream is None:
            return News()
        if self._polled is None:
            try:
                return await self._copy_by_helper(placements)
            except _HelperUnusable:
                await self.close()
                self._polled = PolledFollower(self._host, self._folder)
        return await self._polled.copy_new(placements)

    async def close(self) -> None:
        self._files.close()
        await self._disconnect()

    async def _copy_by_helper(self, placements: Mapping[str, Followed]) -> News:
        stream = self._stream or await self._connect()
        news = News()
        self._scan += 1
        request = await self._request(placements, news)
        asked, began = time.time(), time.monotonic()
        await stream.ask(request)
        received = 0
        while not isinstance(answer := await stream.packet(), Fields):
            if answer is None:
                raise await self._ended(stream)
            received += self._take(answer, news)
        took_s = time.monotonic() - began
        now = self._finish(answer, placements, news)
        if took_s < _SCAN_S or self._skew_s is None:  # the longer it took, the less precise
            self._skew_s = now - (asked + took_s / 2)
        news.skew_s = self._skew_s
        if received > _LEAST_BYTES:
            fitting = int(received / took_s * _SCAN_S)
            self._limit = max(_LEAST_BYTES, min(_MOST_BYTES, fitting))
        return news

    async def _connect(self) -> FollowStream:
        try:
            command = runtime_command(await self._host.python(), "follow")
            running = self._host.stream(command, folder=await self._host.runtime())
            stream = await self._connection.enter_async_context(running)
        except HostError as error:
            if error.unreachable:  # polling would not reach its files either
                raise
            raise _HelperUnusable from error
        self._stream = FollowStream(stream, self._host.name)
        return self._stream

    async def _disconnect(self) -> None:
        with suppress(HostError):  # a lost link has nothing to close
            await self._connection.aclose()
        self._stream = None

    async def _ended(self, stream: FollowStream) -> Exception:
        """Why the host's follower has ended."""
        code, errors = await stream.stream.end()
        if self._scan == 1 and 0 < code < _FIRST_SIGNAL and code != _NO_FOLDER:
            return _HelperUnusable()
        return link_lost(
            self._host.name, f"its follower ended with code {code}: {errors.strip()[-300:]}"
        )

    async def _request(self, placements: Mapping[str, Followed], news: News) -> dict[str, Any]:
        request: dict[str, Any] = {"scan": self._scan, "limit": self._limit}
        if placements is not self._asked:
            request |= await self._changed(placements, news)
        if self._dropped:
            request["drop"], self._dropped = self._dropped, []
        if self._over:
            request["over"] = self._over
        return request

    async def _changed(self, placements: Mapping[str, Followed], news: News) -> dict[str, Any]:
        """What the host has to know of placements that it does not follow exactly so."""
        for run_id in [*self._runs]:
            followed = placements.get(run_id)
            if followed is None or followed.mirror != self._runs[run_id].writer.mirror:
                self._drop(run_id)
        added = {
            run_id: row
            for run_id in placements.keys() - self._runs.keys()
            if (row := await self._add(run_id, placements[run_id], news)) is not None
        }
        self._secrets = next((followed.secrets for followed in placements.values()), None)
        over = [run_id for run_id in self._runs if placements[run_id].over]
        self._unfinished.update(set(over) - set(self._over))
        self._over = over
        self._asked = placements if len(self._runs) == len(placements) else None
        return {"add": added} if added else {}

    async def _add(self, run_id: str, followed: Followed, news: News) -> dict[str, Any] | None:
        if time.monotonic() < self._retry_t.get(run_id, 0.0):
            news.failed.add(run_id)
            return None
        folder = await self._folder(run_id)
        try:
            run = _Run(followed, self._files)
            row = {"folder": folder, "have": run.writer.cursors()}
        except OSError:
            self._fail(run_id, news)
            return None
        self._runs[run_id] = run
        return row

    def _drop(self, run_id: str) -> None:
        if run := self._runs.pop(run_id, None):
            run.writer.close()
        self._unfinished.discard(run_id)
        self._dropped.append(run_id)
        self._asked = None

    def _fail(self, run_id: str, news: News) -> None:
        """Restart this run from what its mirror holds."""
        news.failed.add(run_id)
        self._drop(run_id)
        self._retry_t[run_id] = time.monotonic() + _RETRY_FAILED_S

    def _take(self, frames: Sequence[Frame], news: News) -> int:
        """Put a packet into the mirrors; the bytes that it has brought."""
        with self._secrets.asked_once() if self._secrets else nullcontext():
            for frame in frames:
                run = self._runs.get(frame.run_id)
                if run is None:
                    continue  # its mirror has just failed to write
                try:
                    changed = run.take(frame)
                except (OSError, UnusableDataError) as error:
                    self._leave_alone(frame.run_id, error, news)
                    continue
                for name in changed:
                    news.note(frame.run_id, name)
                if run.is_unfinished:
                    self._unfinished.add(frame.run_id)
        return sum(len(frame.data) for frame in frames)

    def _finish(self, answer: Fields, placements: Mapping[str, Followed], news: News) -> float:
        """The host's clock in Unix seconds."""
        try:
            scan, now = answer.integer("scanned"), answer.time("now")
            news.more = answer.flag("more", False)
        except DecodingError as error:
            raise unreadable(self._host.name) from error
        if scan != self._scan:
            raise unreadable(self._host.name)
        for run_id in [*self._unfinished]:
            run, over = self._runs[run_id], placements[run_id].over
            try:
                for name in run.finish(over=over, read_through=not news.more):
                    news.note(run_id, name)
            except (OSError, UnusableDataError) as error:
                self._leave_alone(run_id, error, news)
                continue
            if not run.is_unfinished:
                self._unfinished.discard(run_id)
        return now

    def _leave_alone(self, run_id: str, error: OSError | UnusableDataError, news: News) -> None:
        """A run whose mirror fails, or whose data is refused: its frames until the host knows that
        are dropped."""
        if isinstance(error, UnusableDataError):
            news.refused[run_id] = (error.code, error.reason)
            self._drop(run_id)
        else:
            self._fail(run_id, news)


class _Run:
    """One run's mirror, and the bytes held back from it."""

    def __init__(self, followed: Followed, files: OpenFiles) -> None:
        self.writer = followed.writer(files)
        self._held: dict[str, bytes] = {}
        self._newest_attempt = max(followed.mirror.attempts(), default=0)

    @property
    def is_unfinished(self) -> bool:
        """Whether bytes are held back, or what was noted of the originals is not written yet."""
        return bool(self._held) or self.writer.has_to_save

    def take(self, frame: Frame) -> list[str]:
        """Put a frame into the mirror; the names of the mirror's files that this has changed.

        Raises:
            OSError: the mirror can't be written, or the frame does not begin where it ends.
            UnusableDataError: the header is not valid, or the mirror takes no more of this run.
        """
        try:
            if _is_appended(frame.name):
                return self._append(frame)
            if is_replaced(frame.name):
                self.writer.replace(frame.name, frame.data, frame.count("mtime_ns"))
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

    def _append(self, frame: Frame) -> list[str]:
        name, at, changed = frame.name, frame.count("at"), []
        inode = _inode_of(frame.header)
        if "reset" in frame.header:
            if held := self._held.pop(name, b""):
                self.writer.append(name, held, final=True)
            changed.append(self.writer.rotate(name, inode) or name)
        elif inode is not None:
            self.writer.set_inode(name, inode)
        held = self._held.pop(name, b"")
        if at != self.writer.size(name) + len(held):
            raise OSError(f"{name} was read from another place than where its copy ends")
        self._newest_attempt = max(self._newest_attempt, _attempt_of(name))
        if frame.data:
            data = held + frame.data if held else frame.data
            taken = self.writer.append(name, data, final=False)
            held = data[taken:]
            if taken:
                changed.append(name)
        if held:
            self._held[name] = held
        return changed


class _HelperUnusable(Exception):
    """The machine can't run the helper; its files may be read all the same."""


def _inode_of(header: Mapping[str, object]) -> int | None:
    """That of the original, where it is news. File systems number up to 2**64."""
    inode = header.get("inode")
    return inode if type(inode) is int and 0 <= inode < 2**64 else None


_is_appended = lru_cache(maxsize=4096)(is_appended)
_attempt_of = lru_cache(maxsize=4096)(attempt_of)
