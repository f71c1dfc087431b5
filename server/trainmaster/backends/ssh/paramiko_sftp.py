"""Read files through SFTP over a paramiko connection. All of it blocks: run it in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import paramiko

from trainmaster.backends.ssh.error_mapping import link_lost
from trainmaster.backends.ssh.file_errors import not_read
from trainmaster.backends.ssh.paramiko_connection import BROKEN
from trainmaster.backends.ssh.shell import wire_bytes

_START_S = 20.0


class SftpUnusable(Exception):
    """SFTP can't do this, or gives no reason for a failure; a command does."""


class ParaSftp:
    """Each method raises `HostError` or `SftpUnusable`."""

    def __init__(self, host: str, client: paramiko.SFTPClient) -> None:
        self._host = host
        self._client = client

    @classmethod
    def start(cls, host: str, connection: paramiko.Transport) -> ParaSftp:
        """Open an SFTP session.

        Raises:
            SftpUnusable: it has none, or its login shell prints into it.
        """
        channel: paramiko.Channel | None = None
        try:
            channel = connection.open_session(timeout=_START_S)
            channel.settimeout(_START_S)
            channel.invoke_subsystem("sftp")
            client = paramiko.SFTPClient(channel)
            channel.settimeout(None)  # a lost link ends a blocked read
            return cls(host, client)
        except (*BROKEN, paramiko.SFTPError) as error:
            if channel is not None:
                channel.close()
            raise SftpUnusable from error

    def end(self) -> None:
        """Close its channel."""
        self._client.close()

    def get(self, path: str, offset: int, limit: int) -> bytes | None:
        with self._mapped_errors(path):
            try:
                file = self._client.open(wire_bytes(path), "rb")
            except FileNotFoundError:
                return None
            with file:
                file.seek(offset)
                return file.read(limit)

    def size(self, path: str) -> int | None:
        with self._mapped_errors(path):
            try:
                return self._client.stat(wire_bytes(path)).st_size
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._mapped_errors(folder):
            try:
                entries = [
                    entry.filename for entry in self._client.listdir_iter(wire_bytes(folder))
                ]
            except FileNotFoundError:
                return []
        return sorted(name for name in entries if name not in (".", ".."))

    @contextmanager
    def _mapped_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise not_read(self._host, path, "permission denied") from error
        except UnicodeError as error:
            raise SftpUnusable from error  # names that are not UTF-8
        except OSError as error:
            raise SftpUnusable from error  # SFTP 3 has one code for all other failures
        except (EOFError, paramiko.SSHException) as error:
            raise link_lost(self._host, str(error)) from error
