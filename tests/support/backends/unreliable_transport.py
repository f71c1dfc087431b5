"""This machine as a host that parts, lies about the time, or lacks Python."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from support.sync.followed_run import HOST

from trainmaster.backends.hosts import LocalHost, Stream
from trainmaster.errors.errors import HostError

_FOLLOW_LATER = """
import sys, time
now, ahead_s = time.time, float(sys.argv[1])
time.time = lambda: now() + ahead_s
from trainer_runtime.host.answer.follow import follow
sys.exit(follow(0, 1))
"""
# Answers the first scan by a frame of the given file, whole or not.
HOSTILE_FOLLOWER = """
import json, sys
asked = json.loads(sys.stdin.readline())
header = {"run": next(iter(asked["add"])), "file": sys.argv[1], "at": 0, "mtime_ns": 1, "n": 4}
print(json.dumps({"frames": [header]}) + "\\nevil", end="")
print(json.dumps({"scanned": 1, "now": 1.0, "more": False}), flush=True)
sys.stdin.read()
"""


class PartingHost(LocalHost):
    """A host whose link can be cut, whose clock may be ahead, whose Python may be missing.

    `command`: what is run in the place of any command that is streamed.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(HOST, root)
        self.away = False
        self.ahead_s = 0.0
        self.interpreter: str | None = sys.executable
        self.streams = 0
        self.command: Sequence[str] | None = None

    async def python(self) -> str:
        if self.interpreter is None:
            raise HostError("PYTHON_MISSING", "No Python.", "Install one.")
        return self.interpreter

    async def root(self) -> str:
        self._check()
        return await super().root()

    async def size(self, path: str) -> int | None:
        self._check()
        return await super().size(path)

    def stream(self, command: Sequence[str], *, folder: str) -> AbstractAsyncContextManager[Stream]:
        if self.command is not None:
            command = self.command
        elif self.ahead_s:
            command = [sys.executable, "-c", _FOLLOW_LATER, str(self.ahead_s)]
        return self._parting(super().stream(command, folder=folder))

    @asynccontextmanager
    async def _parting(self, running: AbstractAsyncContextManager[Stream]) -> AsyncIterator[Stream]:
        self._check()
        self.streams += 1
        async with running as stream:
            yield _PartingStream(self, stream)

    def _check(self) -> None:
        if self.away:
            raise HostError("HOST_UNREACHABLE", "It does not answer.", "Wait.", retryable=True)


class _PartingStream:
    """A stream that is lost with its host's link."""

    def __init__(self, host: PartingHost, stream: Stream) -> None:
        self._host = host
        self._stream = stream

    async def write(self, data: bytes) -> None:
        self._check()
        await self._stream.write(data)

    async def finish(self) -> None:
        await self._stream.finish()

    async def read(self, limit: int) -> bytes:
        self._check()
        return await self._stream.read(limit)

    async def end(self) -> tuple[int, str]:
        return await self._stream.end()

    def _check(self) -> None:
        if self._host.away:
            raise HostError("LINK_LOST", "The link broke.", "Wait.", retryable=True)
