"""Files through SFTP over an asyncssh connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import asyncssh

from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.backends.ssh.exec_files import temporary_path
from trainmaster.backends.ssh.file_errors import not_read, not_written
from trainmaster.backends.ssh.shell import wire_bytes

_START_S = 20.0
_ABSENT = (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath, asyncssh.SFTPNotADirectory)
_DENIED = (asyncssh.SFTPPermissionDenied, asyncssh.SFTPWriteProtect)
_LOST = (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection)


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
