"""The base of transports that run commands over channels of one connection."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Protocol, TypeVar

from trainmaster.backends.ssh.bounded_output import read_bounded
from trainmaster.backends.ssh.error_mapping import no_channel
from trainmaster.backends.ssh.exec_files import ExecFiles
from trainmaster.backends.ssh.shell import (
    TIMED_OUT,
    Captured,
    Framed,
    Opening,
    command_line,
    frame,
    kill_command,
    no_answer,
    shell_unusable,
)
from trainmaster.backends.ssh.transport import Completed, Stream
from trainmaster.errors.errors import HostError

Answer = TypeVar("Answer")

# This shell waits for the command and exits with its code, or with the code for its signal. The
# shell's own message about a signal is discarded.
_WITNESS = (
    command_line(["/bin/sh", "-c", 'exec 3>&2 2>/dev/null;"$@" 2>&3 3>&-;exit $?', "sh"]).encode()
    + b" "
)
_NO_CHANNEL_S = 30.0
_ROOM_AFTER_S = 1.0
_SOON_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_PIECE_BYTES = 1 << 18
_KEPT_ERRORS_BYTES = 1 << 20
_KILL_S = 5.0


class ChannelTransport(ABC):
    """A `Transport` without the connection: commands, and files through commands.

    `reports_signals`: whether its channels report the signal that ended a command.
    """

    reports_signals: ClassVar[bool] = False

    def __init__(self, host: str) -> None:
        self._host = host
        self._files = ExecFiles(host, self._capture)
        self._leaving: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def open_channel(self, line: bytes) -> Channel | None:
        """Have the login shell run `line`; None if the server allows no further channel now.

        Raises:
            HostError: `LINK_LOST`.
        """

    async def make_room(self) -> None:
        """Close a channel that no command uses, such as SFTP's: commands can replace SFTP, not the
        other way round."""
        return

    @abstractmethod
    async def disconnect(self) -> None:
        """Close the connection. Idempotent."""

    async def run(
        self,
        command: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes = b"",
        timeout_s: float,
    ) -> Completed:
        try:
            async with asyncio.timeout(timeout_s):
                done = await self._capture(command, stdin, folder)
        except TimeoutError:
            return Completed(TIMED_OUT, "", no_answer(timeout_s))
        return Completed(done.code, done.output.decode(errors="replace"), done.errors)

    @asynccontextmanager
    async def stream(
        self, command: Sequence[str], *, folder: str | None = None
    ) -> AsyncIterator[Stream]:
        async with self._command(command, folder) as running:
            yield running

    async def put(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._files.put(path, data, mode)

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        return await self._files.get(path, offset, limit)

    async def size(self, path: str) -> int | None:
        return await self._files.size(path)

    async def names(self, folder: str) -> list[str]:
        return await self._files.names(folder)

    async def _capture(
        self, command: Sequence[str], stdin: bytes, folder: str | None = None
    ) -> Captured:
        async with self._command(command, folder) as running:
            writing = asyncio.create_task(_feed(running, stdin))
            try:
                output = await read_bounded(running.read, self._host)
                code, errors = await running.end()
            finally:
                writing.cancel()
                with suppress(asyncio.CancelledError, HostError):
                    await writing
        return Captured(code, output, errors)

    @asynccontextmanager
    async def _command(
        self, command: Sequence[str], folder: str | None
    ) -> AsyncIterator[ChannelCommand]:
        framed = frame(command, folder)
        running = await self._when_free(lambda: self._begun(framed))
        try:
            yield running
        finally:
            await asyncio.shield(self._in_background(running.leave()))

    async def _begun(self, framed: Framed) -> ChannelCommand | None:
        """Start a command. A cancellation meanwhile leaves no unknown command behind."""
        line = framed.line if self.reports_signals else _WITNESS + framed.line
        opening = asyncio.create_task(self.open_channel(line))
        try:
            channel = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._in_background(self._give_up(opening, framed))
            raise
        if channel is None:
            return None
        return ChannelCommand(self._host, channel, framed, self._kill)

    async def _give_up(self, opening: asyncio.Task[Channel | None], framed: Framed) -> None:
        with suppress(HostError, TimeoutError):
            async with asyncio.timeout(_SOON_S):
                channel = await opening
            if channel is not None:
                await ChannelCommand(self._host, channel, framed, self._kill).leave()

    async def _when_free(self, opening: Callable[[], Awaitable[Answer | None]]) -> Answer:
        """Open a channel; waits while the server allows no further one."""
        loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        begun = loop.time()
        while (opened := await opening()) is None:
            if loop.time() > begun + _NO_CHANNEL_S:
                raise no_channel(self._host)
            if loop.time() > begun + _ROOM_AFTER_S:
                await self.make_room()
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return opened

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that continues when its caller is cancelled."""
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _kill(self, pid: int) -> None:
        line = frame(kill_command(pid), None).line
        channel = await self._when_free(lambda: self.open_channel(line))
        try:
            await channel.finish()
            await channel.end()
        finally:
            await channel.close()


async def _feed(running: ChannelCommand, data: bytes) -> None:
    if data:
        await running.write(data)
    await running.finish()


class Channel(Protocol):
    """A command's pipes and exit code. Each method but `close` raises `HostError` `LINK_LOST`."""

    async def read(self, limit: int) -> bytes:
        """At most `limit` bytes of standard output; empty once it has ended."""

    async def read_errors(self, limit: int) -> bytes:
        """The same of standard error."""

    async def write(self, data: bytes) -> None:
        """Send `data`; input that the command no longer reads is dropped."""

    async def finish(self) -> None:
        """Close standard input."""

    async def end(self) -> int:
        """Wait for the exit code."""

    async def close(self) -> None:
        """Close the channel; never raises."""


class ChannelCommand:
    """A `Stream`. `kill` kills a process by its pid, over another channel."""

    def __init__(
        self, host: str, channel: Channel, framed: Framed, kill: Callable[[int], Awaitable[None]]
    ) -> None:
        self._host = host
        self._channel = channel
        self._kill = kill
        self._opening = Opening(framed.marker)
        self._letter = framed.letter  # sent with the first write or read
        self._writing = asyncio.Lock()
        self._ahead: bytes | None = None  # output received with the marker; None before it
        self._code: int | None = None
        self._errors = asyncio.create_task(self._collect_errors(Opening(framed.marker)))

    async def write(self, data: bytes) -> None:
        async with self._writing:
            letter, self._letter = self._letter, b""
            await self._channel.write(letter + data)

    async def finish(self) -> None:
        await self.write(b"")
        async with self._writing:
            await self._channel.finish()

    async def read(self, limit: int) -> bytes:
        if self._letter:
            await self.write(b"")
        if self._ahead is None:
            self._ahead = await self._skip_noise()
        if self._ahead:
            piece, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return piece
        return await self._channel.read(limit)

    async def end(self) -> tuple[int, str]:
        while await self.read(_PIECE_BYTES):
            continue
        errors = await self._errors
        self._code = await self._channel.end()
        return self._code, errors.decode(errors="replace")

    async def leave(self) -> None:
        """Close the channel, and end a command that has not ended; never raises."""
        with suppress(HostError, TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await self._end_process()
        self._errors.cancel()
        await self._channel.close()

    async def _end_process(self) -> None:
        """Kill the process: one without reads and writes would not notice the closed channel."""
        if self._code is not None:
            return
        if self._ahead is None:
            self._ahead = await self._skip_noise()
        if self._opening.pid is not None:
            await self._kill(self._opening.pid)

    async def _skip_noise(self) -> bytes:
        while data := await self._channel.read(_PIECE_BYTES):
            own = self._opening.take(data)
            if own is not None:
                return own
        said = await self._errors
        raise shell_unusable(self._host, self._opening.noise + b"\n" + said)

    async def _collect_errors(self, opening: Opening) -> bytes:
        """The end of the command's own errors; all output if the command never began."""
        kept: bytes | None = None
        with suppress(HostError):  # reading the output raises it
            while data := await self._channel.read_errors(_PIECE_BYTES):
                kept = opening.take(data) if kept is None else (kept + data)[-_KEPT_ERRORS_BYTES:]
        return opening.noise if kept is None else kept
