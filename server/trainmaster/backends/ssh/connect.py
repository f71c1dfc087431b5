"""Connect to a host by its record: the registry of transports."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

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
