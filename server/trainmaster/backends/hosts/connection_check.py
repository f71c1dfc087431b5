"""Checks whether a machine can be reached and used, before the runtime is on it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.checks import CheckRow, failed_by, passed, warning
from trainmaster.backends.hosts.interpreter import find_python
from trainmaster.backends.ssh import Transport
from trainmaster.backends.ssh.endpoint import Endpoint, find_endpoint
from trainmaster.backends.ssh.host_keys import Pins
from trainmaster.backends.ssh.link import Link
from trainmaster.errors.errors import HostError, TrainmasterError
from trainmaster.store.host_record import HostRecord

_REACH_S = 10.0
_COMMAND_S = 30.0
_EMPTY_COMMANDS = 3
_SLOW_COMMAND_S = 0.15
_NOISE_SHOWN = 160
# What sshd does for every command; without SHLVL, bash takes it for that and reads its rc file.
_AS_SSHD = 'unset SHLVL;exec "$1" -c true'
_NOT_RUN = (126, 127)
_BANNER = re.compile(rb"SSH-[0-9.]+-")
# The row that a connection error belongs to.
_ROW_OF = {
    "HOST_KEY_CHANGED": "host key",
    "AUTH_FAILED": "auth",
    "KEY_LOCKED": "auth",
    "SHELL_UNUSABLE": "shell",
    "TRANSPORT_MISSING": "transport",
}


@runtime_checkable
class MovesFiles(Protocol):
    """A transport that knows whether it has SFTP."""

    async def has_sftp(self) -> bool: ...


@dataclass(slots=True)
class Connection:
    """The rows of the check, and the first error that makes the machine unusable.

    `command_s`: what an empty command costs, None where none could be run.
    """

    rows: list[CheckRow] = field(default_factory=list)
    error: TrainmasterError | None = None
    command_s: float | None = None

    def has(self, name: str) -> bool:
        return any(row.name == name for row in self.rows)

    def ok(self, name: str, state: str, untrusted_found: str | None = None) -> None:
        self.rows.append(passed(name, state, untrusted_found))

    def warn(self, name: str, state: str, remedy: str, untrusted_found: str | None = None) -> None:
        self.rows.append(warning(name, state, remedy, untrusted_found))

    def fail(self, name: str, error: TrainmasterError) -> None:
        self.error = self.error or error
        self.rows.append(failed_by(name, error))


async def check_connection(record: HostRecord, pins: Path, *, within_s: float) -> Connection:
    """Log in, and probe the machine's shell; never an error.

    A key that `pins` does not know yet is pinned there.
    """
    connection = Connection()
    link = Link(record, pins)
    try:
        endpoint = find_endpoint(record, os.environ)
        async with asyncio.timeout(within_s):
            await _log_in(endpoint, link, pins, connection)
    except TimeoutError:
        name = "connection" if connection.has("reachable") else "reachable"
        connection.fail(name, _silent(record.name, within_s))
    except TrainmasterError as error:
        connection.fail("address", error)
    finally:
        await link.disconnect()
    return connection


async def _log_in(endpoint: Endpoint, link: Link, pins: Path, connection: Connection) -> None:
    started = time.monotonic()
    try:
        async with link.use() as transport:
            took_s = time.monotonic() - started
            connection.ok("reachable", f"{_route(endpoint)}, connected in {took_s * 1000:.0f} ms")
            _report_host_key(endpoint, pins, connection)
            connection.ok("auth", _user(endpoint))
            await _probe(transport, connection)
    except HostError as error:
        if error.code == "HOST_UNREACHABLE":
            connection.fail("reachable", await _explain(endpoint, error))
            _report_host_key(endpoint, pins, connection)
            return
        if not connection.has("reachable") and error.code in _ROW_OF:
            connection.ok("reachable", f"{_route(endpoint)} answers")
        if not connection.has("host key") and error.code != "HOST_KEY_CHANGED":
            _report_host_key(endpoint, pins, connection)
        connection.fail(_ROW_OF.get(error.code, "connection"), error)


def _route(endpoint: Endpoint) -> str:
    through = [f"jump host {hop.host}:{hop.port}" for hop in endpoint.jumps]
    if endpoint.target.proxy_command is not None:
        through = ["a ProxyCommand"]
    target = f"{endpoint.target.host}:{endpoint.target.port}"
    return f"{target} through {', '.join(through)}" if through else target


async def _explain(endpoint: Endpoint, error: HostError) -> HostError:
    """A more precise error for an unreachable machine: its name, its port, its banner.

    Probed only then: an SSH server counts connections without a login against the client.
    """
    if endpoint.target.proxy_command is not None:
        return error
    first = endpoint.hops[0]
    try:
        async with asyncio.timeout(_REACH_S):
            reader, writer = await asyncio.open_connection(first.host, first.port)
            try:
                banner = _BANNER.search(await reader.read(1024))
            finally:
                writer.close()
    except (OSError, TimeoutError) as reason:
        return _unreachable(endpoint, reason)
    if banner is not None:
        return error
    return HostError(
        "HOST_UNREACHABLE",
        f"{first.host}:{first.port} takes connections, but does not speak SSH.",
        "Check that address and port are those of its SSH server.",
        retryable=True,
    )


def _unreachable(endpoint: Endpoint, error: OSError) -> HostError:
    first = endpoint.hops[0]
    message, fix = f"{endpoint.describe(first)} can't be reached at {first.host}:{first.port}: ", ""
    if isinstance(error, socket.gaierror):
        message += f"the name is not known ({error.strerror})."
        fix = "Check the spelling of the name, and whether DNS or the VPN is up."
    elif isinstance(error, ConnectionRefusedError):
        message += "the connection is refused."
        fix = "Check that the port is right and the SSH server runs there."
    elif isinstance(error, TimeoutError):
        message += f"no answer within {spoken_duration(_REACH_S)}."
        fix = "Check that the machine is up, and that no firewall or VPN blocks it."
    else:
        message += f"{error.strerror or error}."
        fix = "Check that this machine is on the host's network."
    return HostError("HOST_UNREACHABLE", message, fix, retryable=True)


def _silent(name: str, within_s: float) -> HostError:
    return HostError(
        "HOST_UNREACHABLE",
        f"{name} did not answer within {spoken_duration(within_s)}.",
        "Check that the machine is up, and that no firewall or VPN blocks it.",
        retryable=True,
    )


def _report_host_key(endpoint: Endpoint, pins: Path, connection: Connection) -> None:
    try:
        pinned = Pins(pins, endpoint.name).of(endpoint.target.pin_name)
    except HostError as damaged:
        connection.fail("host key", damaged)
        return
    if pinned:
        keys = ", ".join(f"{pin.fingerprint} ({pin.kind})" for pin in pinned)
        connection.ok("host key", f"{keys}, pinned")


def _user(endpoint: Endpoint) -> str:
    target = endpoint.target
    keys = [str(path) for path in target.identities]
    if target.agent is not None and not target.identities_only:
        keys.append("the agent's")
    through = "".join(f", through {hop.shown}" for hop in endpoint.jumps)
    if len(keys) == 1:
        return f"in as {target.user} with {keys[0]}{through}"
    return f"in as {target.user} with one of: {', '.join(keys) or 'no key'}{through}"


async def _probe(transport: Transport, connection: Connection) -> None:
    """Probe the shell, files and an interpreter; a failure of one does not skip the others."""
    for name, probe in (("shell", _shell), ("SFTP", _sftp), ("python", _python)):
        try:
            await probe(transport, connection)
        except HostError as error:
            connection.fail(name, error)
            if error.code != "PYTHON_MISSING":
                return  # the next probes would fail in the same way


async def _shell(transport: Transport, connection: Connection) -> None:
    took = []
    for _ in range(_EMPTY_COMMANDS):
        started = time.monotonic()
        await transport.run(["true"], timeout_s=_COMMAND_S)
        took.append(time.monotonic() - started)
    connection.command_s = min(took)
    done = await transport.run(["/bin/sh", "-c", 'echo "$SHELL"'], timeout_s=_COMMAND_S)
    shell = done.output.strip() or "/bin/sh"
    noisy = await transport.run(["/bin/sh", "-c", _AS_SSHD, "sh", shell], timeout_s=_COMMAND_S)
    said = "" if noisy.code in _NOT_RUN else noisy.output + noisy.errors
    noise = shown(said.replace("\n", " ").encode()).strip()
    row = f"an empty command takes {connection.command_s * 1000:.0f} ms"
    theirs = shown(shell.encode())
    if noise:
        row += "; its rc file prints"
        theirs += f', which prints "{noise[:_NOISE_SHOWN]}"'
    if connection.command_s >= _SLOW_COMMAND_S:
        remedy = "Let its rc file return at once where no terminal is there."
        connection.warn("shell", row, remedy, theirs)
    elif noise:
        remedy = "Harmless here, but scp and rsync break on it: print only to terminals."
        connection.warn("shell", row, remedy, theirs)
    else:
        connection.ok("shell", row, theirs)


async def _sftp(transport: Transport, connection: Connection) -> None:
    if not isinstance(transport, MovesFiles):
        return
    if await transport.has_sftp():
        connection.ok("SFTP", "works")
        return
    remedy = "Nothing needs it: files go by commands. Faster with `Subsystem sftp internal-sftp`."
    connection.warn("SFTP", "does not work", remedy)


async def _python(transport: Transport, connection: Connection) -> None:
    connection.ok("python", "3.10 or newer", await find_python(transport.run))
