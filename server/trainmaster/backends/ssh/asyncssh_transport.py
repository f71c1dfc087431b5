"""The default transport: asyncssh, one connection, a channel per command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

import asyncssh

from trainmaster.backends.ssh.asyncssh_connection import AsyncConnection
from trainmaster.backends.ssh.channel_transport import ChannelTransport
from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.backends.ssh.exec_files import not_read, not_written, temporary_path
from trainmaster.backends.ssh.shell import exit_code, shell_unusable, wire_bytes

Answer = TypeVar("Answer")

# Errors carry what it would log; without a handler its warnings would reach the terminal.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())
_SOON_S = 5.0
_BROKEN = (OSError, asyncssh.Error)
_START_S = 20.0
_ABSENT = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory)
_DENIED = (asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect)
_LOST = (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection)


class AsyncsshTransport(ChannelTransport):
    """A `Transport` over an open connection; `host` is the name for messages."""

    reports_signals = True

    def __init__(self, host: str, connection: AsyncConnection) -> None:
        super().__init__(host)
        self._connection = connection
        self._sftp: AsyncSftp | None = None
        self._sftp_usable = True
        self._sftp_starting = asyncio.Lock()

    async def has_sftp(self) -> bool:
        """Whether files use SFTP; otherwise they use commands."""
        return await self._started_sftp() is not None

    async def open_channel(self, line: bytes) -> AsyncChannel | None:
        target = self._connection.target
        try:
            process = await target.create_process(line, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
                raise shell_unusable(self._host, str(error).encode()) from error
            self._check_link(error)
            return None
        except (OSError, asyncssh.Error) as error:
            raise link_lost(self._host, str(error)) from error
        return AsyncChannel(self._host, target, process)

    async def put(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        await self._either(
            lambda sftp: sftp.put(path, data, mode), lambda: self._files.put(path, data, mode)
        )

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        return await self._either(
            lambda sftp: sftp.get(path, offset, limit), lambda: self._files.get(path, offset, limit)
        )

    async def size(self, path: str) -> int | None:
        return await self._either(lambda sftp: sftp.size(path), lambda: self._files.size(path))

    async def names(self, folder: str) -> list[str]:
        return await self._either(
            lambda sftp: sftp.names(folder), lambda: self._files.names(folder)
        )

    async def make_room(self) -> None:
        if self._sftp is not None:
            self._sftp.end()
            self._sftp, self._sftp_usable = None, False

    async def disconnect(self) -> None:
        await self._connection.close()

    async def _either(
        self,
        by_sftp: Callable[[AsyncSftp], Awaitable[Answer]],
        by_command: Callable[[], Awaitable[Answer]],
    ) -> Answer:
        """By SFTP; by command if the machine has none, or if SFTP gave no reason for a failure."""
        sftp = await self._started_sftp()
        if sftp is not None:
            with suppress(SftpUnusable):
                return await by_sftp(sftp)
        return await by_command()

    async def _started_sftp(self) -> AsyncSftp | None:
        async with self._sftp_starting:
            if self._sftp is None and self._sftp_usable:
                try:
                    self._sftp = await self._when_free(self._start_sftp)
                except SftpUnusable as error:
                    self._check_link(error)
                    self._sftp_usable = False
        return self._sftp

    async def _start_sftp(self) -> AsyncSftp | None:
        try:
            return await AsyncSftp.start(self._host, self._connection.target)
        except asyncssh.ChannelOpenError as error:
            self._check_link(error)
            return None
        except (OSError, asyncssh.Error) as error:
            raise link_lost(self._host, str(error)) from error

    def _check_link(self, error: Exception) -> None:
        if self._connection.target.is_closed():
            raise link_lost(self._host, str(error.__cause__ or error)) from error


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


class SftpUnusable(Exception):
    """SFTP can't do this, or gives no reason for a failure; a command does."""


class AsyncSftp:
    """Each method raises `HostError` or `SftpUnusable`."""

    def __init__(self, host: str, client: asyncssh.SFTPClient) -> None:
        self._host = host
        self._client = client

    @classmethod
    async def start(cls, host: str, connection: asyncssh.SSHClientConnection) -> AsyncSftp:
        """Open an SFTP session.

        Raises:
            SftpUnusable: it has none, or its login shell prints into it.
            ChannelOpenError: the server allows no further channel.
        """
        try:
            async with asyncio.timeout(_START_S):
                return cls(host, await connection.start_sftp_client(path_encoding=None))
        except asyncssh.ChannelOpenError as error:
            if error.code != asyncssh.OPEN_REQUEST_SESSION_FAILED:
                raise
            raise SftpUnusable from error
        except (asyncssh.SFTPError, TimeoutError) as error:
            raise SftpUnusable from error

    def end(self) -> None:
        """Close its channel."""
        self._client.exit()

    async def put(self, path: str, data: bytes, mode: int) -> None:
        target, temporary = wire_bytes(path), wire_bytes(temporary_path(path))
        with self._mapped_errors(path, writing=True):
            file = await self._client.open(temporary, "xb", asyncssh.SFTPAttrs(permissions=0o600))
            try:
                await file.write(data, 0)
                # Sent together and executed in order: saves half of the latency.
                await asyncio.gather(file.chmod(mode), _sync(file))
                await file.close()
                await self._client.posix_rename(temporary, target)
            except asyncssh.SFTPError:
                await self._discard(file, temporary)
                raise

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        with self._mapped_errors(path):
            try:
                file = await self._client.open(wire_bytes(path), "rb")
            except _ABSENT:
                return None
            try:
                return cast(bytes, await file.read(limit, offset))
            finally:
                await file.close()

    async def size(self, path: str) -> int | None:
        with self._mapped_errors(path):
            try:
                return (await self._client.stat(wire_bytes(path))).size
            except _ABSENT:
                return None

    async def names(self, folder: str) -> list[str]:
        with self._mapped_errors(folder):
            try:
                entries = await self._client.listdir(wire_bytes(folder))
            except _ABSENT:
                return []
        names = (bytes(name) for name in entries if name not in (b".", b".."))
        return sorted(name.decode("utf-8", "surrogateescape") for name in names)

    async def _discard(self, file: asyncssh.SFTPClientFile, temporary: bytes) -> None:
        for gone in (file.close(), self._client.remove(temporary)):
            try:
                await gone
            except asyncssh.SFTPError:
                continue  # report the first error

    @contextmanager
    def _mapped_errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        refused = not_written if writing else not_read
        try:
            yield
        except _LOST as error:
            raise link_lost(self._host, str(error)) from error
        except _DENIED as error:
            raise refused(self._host, path, "permission denied") from error
        except _ABSENT as error:
            raise refused(self._host, path, "the folder does not exist") from error
        except asyncssh.SFTPError as error:
            raise SftpUnusable from error  # SFTP 3 has one code for all other failures
        except (OSError, asyncssh.Error) as error:
            raise link_lost(self._host, str(error)) from error


async def _sync(file: asyncssh.SFTPClientFile) -> None:
    try:
        await file.fsync()
    except asyncssh.SFTPOpUnsupported:
        return
