"""A command over a channel of any transport; output before the command's own is removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from trainmaster.backends.ssh.shell import Framed, Opening, shell_unusable
from trainmaster.errors.errors import HostError

_PIECE_BYTES = 1 << 18
_KEPT_ERRORS_BYTES = 1 << 20
_KILL_S = 5.0


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
