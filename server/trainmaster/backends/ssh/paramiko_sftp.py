"""Reading files by SFTP over a paramiko connection. All of it blocks: it belongs into a thread."""

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
    """SFTP can't do this, or can't tell why not; commands can."""


class ParaSftp:
    """Raises, each method: `HostError`; `SftpUnusable`."""

    def __init__(self, host: str, client: paramiko.SFTPClient) -> None:
        self._host = host
        self._client = client

    @classmethod
    def start(cls, host: str, connection: paramiko.Transport) -> ParaSftp:
        """Start the server's SFTP.

        Raises:
            SftpUnusable: where it has none, or its login shell prints into it.
        """
        channel: paramiko.Channel | None = None
        try:
            channel = connection.open_session(timeout=_START_S)
            channel.settimeout(_START_S)
            channel.invoke_subsystem("sftp")
            client = paramiko.SFTPClient(channel)
            channel.settimeout(None)  # a link that is lost ends what waits for it
            return cls(host, client)
        except (*BROKEN, paramiko.SFTPError) as error:
            if channel is not None:
                channel.close()
            raise SftpUnusable from error

    def end(self) -> None:
        """Give its channel back."""
        self._client.close()

    def get(self, path: str, offset: int, limit: int) -> bytes | None:
        with self._told(path):
            try:
                file = self._client.open(wire_bytes(path), "rb")
            except FileNotFoundError:
                return None
            with file:
                file.seek(offset)
                return file.read(limit)

    def size(self, path: str) -> int | None:
        with self._told(path):
            try:
                return self._client.stat(wire_bytes(path)).st_size
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._told(folder):
            try:
                found = [entry.filename for entry in self._client.listdir_iter(wire_bytes(folder))]
            except FileNotFoundError:
                return []
        return sorted(name for name in found if name not in (".", ".."))

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise not_read(self._host, path, "permission denied") from error
        except UnicodeError as error:
            raise SftpUnusable from error  # names that are no text
        except OSError as error:
            raise SftpUnusable from error  # all other failures are one in SFTP 3
        except (EOFError, paramiko.SSHException) as error:
            raise link_lost(self._host, str(error)) from error
