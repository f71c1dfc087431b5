"""The link to a host: one connection, opened on demand, and opened again when it breaks."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from trainmaster.backends.ssh.endpoint import Endpoint, Hop, find_endpoint
from trainmaster.backends.ssh.error_mapping import not_installed
from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.known_hosts import KnownKeys, read_known_keys
from trainmaster.backends.ssh.private_keys import (
    HopKeys,
    collect_keys,
    locked_keys,
    needs_unlocking,
    unlock,
)
from trainmaster.backends.ssh.transport import Transport
from trainmaster.errors.errors import HostError
from trainmaster.home.extras import installing
from trainmaster.store.host_record import HostRecord

Connect = Callable[[Endpoint, Mapping[Hop, HopKeys], Pins], Awaitable[Transport]]
Answer = TypeVar("Answer")

# sshd allows ten sessions per connection: SFTP holds one, killing a command takes one.
CHANNELS = 8
REPEAT_FOR_S = 8.0
# A host that was never reached more likely has a wrong address than an outage.
REPEAT_AT_FIRST_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0


class Link:
    """At most one connection to a host at a time, for one event loop.

    `pins` is the host's known_hosts file. `answered` is called after each successful use.
    """

    def __init__(
        self, record: HostRecord, pins: Path, answered: Callable[[], None] = lambda: None
    ) -> None:
        self._record = record
        self._pins = pins
        self._bond: _LoopLink | None = None
        self._was_reached = False
        self._answered = answered

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Transport]:
        """The transport, for one command or file; at most eight users at once.

        Raises:
            HostError: as `open_transport`, if no connection is open and none can be opened.
        """
        bond = self._bound()
        async with bond.channels:
            transport = await bond.transport()
            self._was_reached = True
            try:
                yield transport
            except HostError as error:
                if error.code == "LINK_LOST":
                    await bond.drop(transport)
                raise
            self._answered()

    async def repeat(self, work: Callable[[Transport], Awaitable[Answer]]) -> Answer:
        """Do idempotent work with the transport; see `persist`."""

        async def once() -> Answer:
            async with self.use() as transport:
                return await work(transport)

        return await self.persist(once)

    async def persist(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Do idempotent work, and retry it when the connection breaks.

        Raises:
            HostError: `LINK_LOST`, `HOST_UNREACHABLE` after 8 s of retries (2 s if the host was not
                reached before); all others at once.
        """
        loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        begun = loop.time()
        while True:
            try:
                return await work()
            except HostError as error:
                lasts_s = REPEAT_FOR_S if self._was_reached else REPEAT_AT_FIRST_S
                over = loop.time() + pause_s > begun + lasts_s
                if not error.unanswered or not error.retryable:
                    raise
                if over:
                    self._was_reached = False  # the next caller fails sooner
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def disconnect(self) -> None:
        """Close the connection, if any; the next use opens another."""
        bond, self._bond = self._bond, None
        if bond is not None and bond.loop is asyncio.get_running_loop():
            await bond.close()

    def _bound(self) -> _LoopLink:
        """The link on the running event loop; another loop's can't be used or closed."""
        loop = asyncio.get_running_loop()
        if self._bond is None or self._bond.loop is not loop:
            self._bond = _LoopLink(loop, lambda: open_transport(self._record, self._pins))
        return self._bond


class _LoopLink:
    """A link's connection on one event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, opened: Callable[[], Awaitable[Transport]]
    ) -> None:
        self.loop = loop
        self.channels = asyncio.Semaphore(CHANNELS)
        self._open = opened
        self._opening: asyncio.Task[Transport] | None = None

    async def transport(self) -> Transport:
        """The connection; concurrent callers share one attempt, and its failure."""
        if self._opening is None or _has_failed(self._opening):
            self._opening = self.loop.create_task(self._opened())
            self._opening.add_done_callback(
                _has_failed
            )  # retrieves the error, also without a waiter
        return await asyncio.shield(self._opening)

    async def drop(self, broken: Transport) -> None:
        """Drop a broken connection, unless it was replaced already."""
        opening = self._opening
        if opening is not None and opening.done() and not _has_failed(opening):
            if opening.result() is not broken:
                return
            self._opening = None
            await _end(broken)

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        with suppress(asyncio.CancelledError, HostError):
            await _end(await opening)

    async def _opened(self) -> Transport:
        return await self._open()


def _has_failed(opening: asyncio.Task[Transport]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


async def _end(transport: Transport) -> None:
    with suppress(HostError, OSError):
        await transport.disconnect()


async def open_transport(
    record: HostRecord, pins: Path, environment: Mapping[str, str] | None = None
) -> Transport:
    """Connect to a host by the transport that its record names.

    `pins` is the file of the host's pinned keys. From `environment` (None: this process's) come
    HOME, with the user's OpenSSH configuration, keys and known hosts, SSH_AUTH_SOCK and
    TRAINMASTER_KEY_PASSPHRASE; the system's ssh gets all of it.

    Raises:
        UsageError: `UNSAFE_NAME` or `BAD_ARGUMENT`, an address is invalid.
        HostError: `HOST_UNREACHABLE`, `HOST_KEY_CHANGED`, `AUTH_FAILED`, `KEY_LOCKED`,
            `TRANSPORT_MISSING`.
    """
    surroundings = dict(os.environ if environment is None else environment)
    endpoint = await asyncio.to_thread(find_endpoint, record, surroundings)
    pins_of_host = Pins(pins, record.name, await asyncio.to_thread(_known_keys, endpoint))
    if record.transport == "openssh":
        from trainmaster.backends.ssh.openssh_transport import OpensshTransport

        return await OpensshTransport.connect(endpoint, pins_of_host, surroundings)
    connect = _connect_asyncssh if record.transport == "asyncssh" else _connect_paramiko
    return await _with_keys(connect, endpoint, pins_of_host, surroundings)


def _known_keys(endpoint: Endpoint) -> dict[str, KnownKeys]:
    return {hop.pin_name: read_known_keys(hop) for hop in endpoint.hops}


async def _with_keys(
    connect: Connect, endpoint: Endpoint, pins: Pins, environment: Mapping[str, str]
) -> Transport:
    """Connect with the unlocked keys; ask for a passphrase only if those are refused."""
    keys = await collect_keys(endpoint, environment)
    locked = locked_keys(keys)
    if not needs_unlocking(keys):
        try:
            return await connect(endpoint, keys, pins)
        except HostError as error:
            if error.code != "AUTH_FAILED" or not locked:
                raise
    await unlock(locked, environment)
    return await connect(endpoint, await collect_keys(endpoint, environment), pins)


async def _connect_asyncssh(
    endpoint: Endpoint, keys: Mapping[Hop, HopKeys], pins: Pins
) -> Transport:
    from trainmaster.backends.ssh.asyncssh_connection import connect
    from trainmaster.backends.ssh.asyncssh_transport import AsyncsshTransport

    return AsyncsshTransport(endpoint.name, await connect(endpoint, keys, pins))


async def _connect_paramiko(
    endpoint: Endpoint, keys: Mapping[Hop, HopKeys], pins: Pins
) -> Transport:
    if importlib.util.find_spec("paramiko") is None:
        raise not_installed("paramiko", f"Run {installing('paramiko')}.")
    from trainmaster.backends.ssh.paramiko_transport import ParamikoTransport

    return await ParamikoTransport.connect(endpoint, keys, pins)
