"""The transport over the system's ssh, for logins that only it supports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from trainmaster.backends.ssh.channel_transport import ChannelTransport
from trainmaster.backends.ssh.endpoint import Endpoint
from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.openssh_master import SshMaster, start_master

_FAILED = 255  # the exit code of a failing ssh, and of a command ended by a signal
_REFUSED = b"Session open refused by peer"
_PIECE_BYTES = 1 << 18
_END_S = 5.0


class OpensshTransport(ChannelTransport):
    """A `Transport` over a connected master; each command is an ssh process."""

    def __init__(self, host: str, master: SshMaster) -> None:
        super().__init__(host)
        self._master = master

    @classmethod
    async def connect(
        cls, endpoint: Endpoint, pins: Pins, environment: Mapping[str, str]
    ) -> OpensshTransport:
        """Raises: `HostError`, as `start_master`."""
        return cls(endpoint.name, await start_master(endpoint, pins, environment))

    async def open_channel(self, line: bytes) -> SshProcess | None:
        process = await asyncio.create_subprocess_exec(
            *self._master.session(line),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._master.environment,
            start_new_session=True,  # keyboard interrupts are handled by this process
        )
        channel = SshProcess(self._host, self._master, process)
        try:
            if not await channel.begin():
                await channel.close()
                return None
        except BaseException:
            await channel.close()
            raise
        return channel

    async def disconnect(self) -> None:
        await self._master.close()


class SshProcess:
    """An ssh process that uses the master, as a channel."""

    def __init__(self, host: str, master: SshMaster, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("ssh was started without pipes")
        self._host, self._master, self._process = host, master, process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr
        self._ahead = self._errors_ahead = b""

    async def begin(self) -> bool:
        """Wait for the first output; False if the server allows no further channel.

        Raises:
            HostError: `LINK_LOST`.
        """
        self._ahead = await self._output.read(_PIECE_BYTES)
        if self._ahead:
            return True
        self._errors_ahead = await self._errors.read()
        if _REFUSED in self._errors_ahead:
            return False
        await self.end()
        return True

    async def read(self, limit: int) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return piece
        if piece := await self._output.read(limit):
            return piece
        await self.end()  # a broken output resembles an ended one
        return b""

    async def read_errors(self, limit: int) -> bytes:
        if self._errors_ahead:
            piece, self._errors_ahead = self._errors_ahead[:limit], self._errors_ahead[limit:]
            return piece
        return await self._errors.read(limit)

    async def write(self, data: bytes) -> None:
        # Output and exit code show how a command ended, not input that it no longer reads.
        try:
            self._input.write(data)
            await self._input.drain()
        except (BrokenPipeError, ConnectionResetError):
            if self._process.returncode is not None:
                await self.end()

    async def finish(self) -> None:
        self._input.close()

    async def end(self) -> int:
        code = await self._process.wait()
        if code < 0 or (code == _FAILED and not await self._master.alive()):
            raise link_lost(self._host, "ssh ended before the command")
        return code

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._input.close()
        # asyncio reports a process's end only after its outputs were read completely.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.gather(_drain(self._output), _drain(self._errors))
                await self._process.wait()


async def _drain(output: asyncio.StreamReader) -> None:
    while await output.read(_PIECE_BYTES):
        continue
