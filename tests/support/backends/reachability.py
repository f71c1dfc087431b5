"""Shared by the tests of transports: their names, running hosts, connections."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.backends.ssh_hosts import Sshd
from support.mcp.scripted_agent import ssh_agent

from trainmaster.backends.ssh import Transport
from trainmaster.backends.ssh.link import open_transport
from trainmaster.backends.ssh.private_keys import PASSPHRASE_VARIABLE
from trainmaster.store.host_record import HostRecord

Answered = TypeVar("Answered")

PASSPHRASE = "open sesame 7391"
TRANSPORTS = ["asyncssh", "openssh", "paramiko"]
# One line that bash, zsh, fish, tcsh and sh all take.
NOISE = (
    "sh -c 'echo Welcome; echo warning >&2; sleep 0.3; echo to this host; echo >&2; "
    'printf "no end"; printf "nor here" >&2\'\n'
)


class SharedHosts:
    """Hosts shared by tests, started at first use; tests must not change them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._standing: dict[str, Sshd] = {}

    def __call__(self, **options: Any) -> Sshd:
        key = repr(sorted(options.items()))
        if key not in self._standing:
            self._standing[key] = self._stack.enter_context(Sshd(**options))
        return self._standing[key]


class Reach:
    """Connects to hosts by one transport, with separate pins."""

    def __init__(self, transport: str, pins: Path) -> None:
        self.transport = transport
        self.pins = pins

    def record(self, host: Sshd, **changes: Any) -> HostRecord:
        return host.record(transport=self.transport, **changes)

    @asynccontextmanager
    async def __call__(self, host: Sshd, **changes: Any) -> AsyncIterator[Transport]:
        opened = await open_transport(self.record(host, **changes), self.pins)
        try:
            yield opened
        finally:
            await opened.disconnect()


class User:
    """The user here: a home with an OpenSSH configuration, and an agent where one is started."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home
        self._patch = monkeypatch
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)

    def configure(self, *blocks: str) -> None:
        (self.home / ".ssh" / "config").write_text("\n".join(blocks) + "\n")

    def knows_passphrase(self, passphrase: str) -> None:
        self._patch.setenv(PASSPHRASE_VARIABLE, passphrase)

    @contextmanager
    def agent(self, *keys: Path) -> Iterator[None]:
        """An ssh-agent that holds `keys`, which have no passphrase."""
        address = self.home / "agent"
        with ssh_agent(address):
            self._patch.setenv("SSH_AUTH_SOCK", str(address))
            for key in keys:
                subprocess.run(["ssh-add", "-q", key], check=True)
            yield


def finish(work: Coroutine[Any, Any, Answered], bound_s: float = 120.0) -> Answered:
    """Do asynchronous work to its end; fails where that takes longer than the bound."""

    async def bounded() -> Answered:
        async with asyncio.timeout(bound_s):
            return await work

    return asyncio.run(bounded())


def said(reach: Reach, host: Sshd, *command: str, **changes: str | int | None) -> str:
    """The output of a command on a host, which proves the login."""

    async def ask() -> str:
        async with reach(host, **changes) as transport:
            done = await transport.run(command or ["id", "-un"], timeout_s=60)
            assert (done.code, done.errors) == (0, "")
            return done.output.strip()

    return finish(ask())


def some_bytes(count: int) -> bytes:
    """Bytes of every value, without a pattern, the same each time."""
    pieces: Iterable[bytes] = (hashlib.sha256(str(n).encode()).digest() for n in range(count // 32))
    return b"".join(pieces) + b"\0" * (count % 32)


def commands_on(host: Sshd) -> list[str]:
    """The command lines of everything that runs on a host."""
    found = []
    for pid in host.processes:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has just ended
    return [command.strip() for command in found]
