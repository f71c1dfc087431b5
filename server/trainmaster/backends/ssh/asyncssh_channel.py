"""A command's channel over an asyncssh connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncssh

from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.backends.ssh.shell import exit_code

_SOON_S = 5.0
_BROKEN = (OSError, asyncssh.Error)


class AsyncChannel:
    """A `Channel`."""

    def __init__(
        self,
        host: str,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
    ) -> None:
        self._host, self._connection, self._process = host, connection, process

    async def read(self, limit: int) -> bytes:
        return await self._receive(self._process.stdout, limit)

    async def read_errors(self, limit: int) -> bytes:
        return await self._receive(self._process.stderr, limit)

    async def write(self, data: bytes) -> None:
        # Output and exit code show how a command ended, not input that it no longer reads.
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except _BROKEN as error:
            self._check_link(error)

    async def finish(self) -> None:
        try:
            self._process.stdin.write_eof()
        except _BROKEN as error:
            self._check_link(error)

    async def end(self) -> int:
        await self._process.wait_closed()
        signal = self._process.exit_signal
        code = exit_code(self._process.exit_status, signal[0] if signal else None)
        if code is None:
            raise link_lost(self._host, "it closed before the command had ended")
        return code

    async def close(self) -> None:
        self._process.channel.abort()
        with suppress(*_BROKEN, TimeoutError):
            async with asyncio.timeout(_SOON_S):
                await self._process.wait_closed()

    async def _receive(self, reader: asyncssh.SSHReader[bytes], limit: int) -> bytes:
        try:
            data = await reader.read(limit)
        except _BROKEN as error:
            raise link_lost(self._host, str(error)) from error
        if not data:
            self._check_link(None)
        return data

    def _check_link(self, error: Exception | None) -> None:
        if self._connection.is_closed() or isinstance(error, asyncssh.Error):
            raise link_lost(self._host, str(error or "it was closed")) from error
