"""A paramiko channel that is read when data has arrived, so that no thread blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import paramiko

from trainmaster.backends.ssh.error_mapping import link_lost, reason_of
from trainmaster.backends.ssh.paramiko_connection import BROKEN
from trainmaster.errors.errors import HostError

Answer = TypeVar("Answer")

_PIECE_BYTES = 1 << 18


class InThread(Protocol):
    """Runs blocking work in a thread of the transport."""

    async def __call__(self, work: Callable[[], Answer]) -> Answer: ...


class ParaChannel:
    """A `Channel` over a paramiko channel."""

    def __init__(self, host: str, channel: paramiko.Channel, in_thread: InThread) -> None:
        self._host = host
        self._channel = channel
        self._in_thread = in_thread
        self._output = _Source(channel.recv_ready, channel.recv, in_thread)
        self._errors = _Source(channel.recv_stderr_ready, channel.recv_stderr, in_thread)
        channel.in_buffer.set_event(self._output.arrival)
        channel.in_stderr_buffer.set_event(self._errors.arrival)

    async def read(self, limit: int) -> bytes:
        data = await self._read_source(self._output, limit)
        if not data and not self._channel.eof_received:
            self._check_link()
        return data

    async def read_errors(self, limit: int) -> bytes:
        return await self._read_source(self._errors, limit)

    async def write(self, data: bytes) -> None:
        # Output and exit code show how a command ended, not input that it no longer reads.
        try:
            # paramiko copies the rest of the data for every packet: send small pieces.
            for begin in range(0, len(data), _PIECE_BYTES):
                piece = data[begin : begin + _PIECE_BYTES]
                await self._in_thread(partial(self._channel.sendall, piece))
        except BROKEN:
            self._check_link()

    async def finish(self) -> None:
        with suppress(*BROKEN):
            await self._in_thread(self._send_eof)

    def _send_eof(self) -> None:
        """As `shutdown_write`, but never after a close.

        paramiko builds the message under the channel's lock and sends it later. Where the command
        ends in between, its thread has answered the server's close by then, and the server ends the
        whole connection: "ieof packet referred to nonexistent channel".
        """
        channel: Any = self._channel  # of whose inside its types say nothing
        with channel.lock:
            message = channel._send_eof()
            if message is not None:
                channel.transport._send_user_message(message)

    async def end(self) -> int:
        code = await self._in_thread(self._channel.recv_exit_status)
        self._check_link()
        return code

    async def close(self) -> None:
        with suppress(HostError, *BROKEN):
            await self._in_thread(self._channel.close)

    async def _read_source(self, source: _Source, limit: int) -> bytes:
        try:
            return await source.read(limit, self._over)
        except BROKEN as error:  # reading sends a window update
            raise link_lost(self._host, reason_of(error)) from error

    def _check_link(self) -> None:
        """Raise if the channel closed without an exit code: the link broke."""
        if self._channel.closed and self._channel.exit_status < 0:
            raise link_lost(self._host, "the channel closed before the command had ended")

    def _over(self) -> bool:
        return bool(self._channel.eof_received or self._channel.closed)


class _Source:
    """Standard output or standard error of a channel."""

    def __init__(
        self, ready: Callable[[], bool], take: Callable[[int], bytes], in_thread: InThread
    ) -> None:
        self.arrival = _Arrival()
        self._ready, self._take, self._in_thread = ready, take, in_thread
        self._taking: asyncio.Task[bytes] | None = None
        self._ahead = b""

    async def read(self, limit: int, over: Callable[[], bool]) -> bytes:
        """The next data; empty at the end. Can be cancelled without loss."""
        while not self._ahead:
            self.arrival.forget()
            ended = over()
            if self._taking is None and self._ready():
                # Reading may send a window update, which blocks on a stalled link: not in the
                # event loop's thread.
                self._taking = asyncio.create_task(
                    self._in_thread(lambda: self._take(_PIECE_BYTES))
                )
            if self._taking is not None:
                self._ahead = await asyncio.shield(self._taking)
                self._taking = None
            elif ended:
                return b""
            else:
                await self.arrival.next()
        piece, self._ahead = self._ahead[:limit], self._ahead[limit:]
        return piece


class _Arrival(threading.Event):
    """Set by paramiko's thread when data has arrived or the output has ended; awaited here."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._seen = asyncio.Event()

    def set(self) -> None:
        super().set()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._seen.set)

    def forget(self) -> None:
        self._seen.clear()

    async def next(self) -> None:
        await self._seen.wait()
