"""What the tests of transports share: which there are, boxes that stand, ways in."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from boxes import Sshd

from trainmaster.host_record import HostRecord
from trainmaster.transports import Transport
from trainmaster.transports.opening import open_transport

Answered = TypeVar("Answered")

TRANSPORTS = ["asyncssh", "openssh", "paramiko"]
# One line that bash, zsh, fish, tcsh and sh all take.
NOISE = (
    "sh -c 'echo Welcome; echo warning >&2; sleep 0.3; echo to this box; echo >&2; "
    'printf "no end"; printf "nor here" >&2\'\n'
)


class StandingBoxes:
    """Boxes that several tests use, made at first use; they change nothing that others see."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._standing: dict[str, Sshd] = {}

    def __call__(self, **options: Any) -> Sshd:
        key = repr(sorted(options.items()))
        if key not in self._standing:
            self._standing[key] = self._stack.enter_context(Sshd(**options))
        return self._standing[key]


class Reach:
    """The way to boxes by one transport, with pins of its own."""

    def __init__(self, transport: str, pins: Path) -> None:
        self.transport = transport
        self.pins = pins

    def record(self, box: Sshd, **changes: Any) -> HostRecord:
        return box.record(transport=self.transport, **changes)

    @asynccontextmanager
    async def __call__(self, box: Sshd, **changes: Any) -> AsyncIterator[Transport]:
        opened = await open_transport(self.record(box, **changes), self.pins)
        try:
            yield opened
        finally:
            await opened.disconnect()


def finish(work: Coroutine[Any, Any, Answered], bound_s: float = 60.0) -> Answered:
    """Do asynchronous work to its end; fails where that takes longer than the bound."""

    async def bounded() -> Answered:
        async with asyncio.timeout(bound_s):
            return await work

    return asyncio.run(bounded())


def some_bytes(count: int) -> bytes:
    """Bytes of every value, without a pattern, the same each time."""
    pieces: Iterable[bytes] = (hashlib.sha256(str(n).encode()).digest() for n in range(count // 32))
    return b"".join(pieces) + b"\0" * (count % 32)


def commands_on(box: Sshd) -> list[str]:
    """The command lines of everything that runs on a box."""
    found = []
    for pid in box.processes:
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has just ended
    return [command.strip() for command in found]
