"""The transport over paramiko, for servers that the others do not support."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TypeVar

import paramiko

from trainmaster.backends.ssh.channel_transport import ChannelTransport
from trainmaster.backends.ssh.endpoint import Endpoint, Hop
from trainmaster.backends.ssh.error_mapping import (
    KEEPALIVE_EVERY_S,
    KEEPALIVE_MISSES,
    link_lost,
    reason_of,
)
from trainmaster.backends.ssh.exec_files import not_read
from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.paramiko_channel import ParaChannel
from trainmaster.backends.ssh.paramiko_connection import BROKEN, close_all, connect_all
from trainmaster.backends.ssh.private_keys import HopKeys
from trainmaster.backends.ssh.shell import shell_unusable, wire_bytes

Answer = TypeVar("Answer")

# Most blocking work is short. Writing to a command that does not read, and waiting for a command
# that has closed its output, are not: enough threads for all sessions that servers allow.
_THREADS = 32
_OPEN_S = 20.0
# paramiko requests a file in sequential pieces: a command is faster.
_LARGE_BYTES = 1 << 17
_START_S = 20.0


class ParamikoTransport(ChannelTransport):
    """A `Transport` over open connections; the last one is the target's."""

    def __init__(self, host: str, connections: Sequence[paramiko.Transport]) -> None:
        super().__init__(host)
        self._connections = connections
        self._target = connections[-1]
        self._threads = ThreadPoolExecutor(_THREADS, "trainmaster-paramiko")
        self._sftp: ParaSftp | None = None
        self._sftp_usable = True
        self._one_opens = asyncio.Lock()
        self._one_at_a_time = asyncio.Lock()  # paramiko's SFTP is not safe for concurrent use
        self._watch = asyncio.create_task(self._keep_alive())
        self._last_will = weakref.finalize(self, close_all, connections)

    @classmethod
    async def connect(
        cls, endpoint: Endpoint, keys: Mapping[Hop, HopKeys], pins: Pins
    ) -> ParamikoTransport:
        """Raises: `HostError`, as `connect_all`."""
        connecting: Future[Sequence[paramiko.Transport]] = _in_daemon_thread(
            lambda: connect_all(endpoint, keys, pins)
        )
        try:
            return cls(endpoint.name, await asyncio.wrap_future(connecting))
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_made)  # a thread can't be stopped
            raise

    async def open_channel(self, line: bytes) -> ParaChannel | None:
        try:
            # paramiko confuses concurrent refusals, which can end the connection.
            async with self._one_opens:
                channel = await self._in_thread(lambda: self._target.open_session(timeout=_OPEN_S))
        except BROKEN as error:
            if self._target.is_active():
                return None
            raise link_lost(self._host, reason_of(error)) from error
        opened = ParaChannel(self._host, channel, self._in_thread)
        try:
            await self._in_thread(lambda: channel.exec_command(line))
        except BROKEN as error:
            if self._target.is_active():
                raise shell_unusable(self._host, str(error).encode()) from error
            raise link_lost(self._host, reason_of(error)) from error
        return opened

    # Files are written by command: paramiko's SFTP has no fsync.

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        if limit <= _LARGE_BYTES:
            with suppress(SftpUnusable):
                return await self._by_sftp(lambda sftp: sftp.get(path, offset, limit))
        return await super().get(path, offset, limit)

    async def size(self, path: str) -> int | None:
        with suppress(SftpUnusable):
            return await self._by_sftp(lambda sftp: sftp.size(path))
        return await super().size(path)

    async def names(self, folder: str) -> list[str]:
        with suppress(SftpUnusable):
            return await self._by_sftp(lambda sftp: sftp.names(folder))
        return await super().names(folder)

    async def make_room(self) -> None:
        async with self._one_at_a_time:
            sftp, self._sftp = self._sftp, None
            if sftp is not None:
                self._sftp_usable = False
                await self._in_thread(sftp.end)

    async def disconnect(self) -> None:
        self._watch.cancel()
        await asyncio.to_thread(close_all, self._connections)
        self._threads.shutdown(wait=False)

    async def _by_sftp(self, work: Callable[[ParaSftp], Answer]) -> Answer:
        async with self._one_at_a_time:
            if self._sftp is None:
                if not self._sftp_usable:
                    raise SftpUnusable
                await self._start_sftp()
            sftp = self._sftp
            if sftp is None:
                raise SftpUnusable
            return await self._in_thread(lambda: work(sftp))

    async def _start_sftp(self) -> None:
        try:
            self._sftp = await self._in_thread(lambda: ParaSftp.start(self._host, self._target))
        except SftpUnusable as error:
            if not self._target.is_active():
                raise link_lost(self._host, str(error.__cause__)) from error
            self._sftp_usable = isinstance(error.__cause__, paramiko.ChannelException)
            raise

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        try:
            begun = self._threads.submit(work)
        except RuntimeError as error:  # the threads end with the connection
            raise link_lost(self._host, "it was ended from here") from error
        return await asyncio.wrap_future(begun)

    async def _keep_alive(self) -> None:
        """Close the connection if the server stops answering: paramiko sends keepalives but ignores
        missing answers."""
        while self._target.is_active():
            await asyncio.sleep(KEEPALIVE_EVERY_S)
            asking = asyncio.to_thread(self._target.global_request, "keepalive@openssh.com")
            try:
                await asyncio.wait_for(asking, KEEPALIVE_EVERY_S * (KEEPALIVE_MISSES - 1))
            except (TimeoutError, *BROKEN):
                break
        await asyncio.to_thread(close_all, self._connections)


def _in_daemon_thread(work: Callable[[], Answer]) -> Future[Answer]:
    """Start work that may outlive its caller, in a daemon thread outside the pool."""
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()  # from here on, it can't be cancelled

    def work_and_report() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work_and_report, name="trainmaster-connecting", daemon=True).start()
    return future


def _close_made(connecting: Future[Sequence[paramiko.Transport]]) -> None:
    if connecting.exception() is None:
        close_all(connecting.result())


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
