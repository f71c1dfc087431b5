"""A host whose follower, listings and files say whatever a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from support.sync.followed_run import HOST

from trainmaster.backends.hosts import LocalHost, Stream
from trainmaster.backends.ssh import Completed
from trainmaster.errors.errors import HostError


class ScriptedStream:
    """Gives `output` whatever it is asked, then ends."""

    def __init__(self, output: bytes) -> None:
        self._output = output

    async def write(self, data: bytes) -> None:
        return

    async def read(self, limit: int) -> bytes:
        taken, self._output = self._output[:limit], self._output[limit:]
        return taken

    async def end(self) -> tuple[int, str]:
        return 0, ""


class HostileHost(LocalHost):
    """`output`: of its follower; `listed`: of every folder; `sizes`: of every file, in turn."""

    def __init__(self, root: Path) -> None:
        super().__init__(HOST, root)
        self.output = b""
        self.listed: list[str] = []
        self.sizes: list[int] = [0]
        self.data = b""

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        raise HostError("SHELL_UNUSABLE", "It runs no commands.", "Use another host.")

    def stream(self, command: Sequence[str], *, folder: str) -> AbstractAsyncContextManager[Stream]:
        return self._scripted()

    @asynccontextmanager
    async def _scripted(self) -> AsyncIterator[Stream]:
        yield ScriptedStream(self.output)  # type: ignore[misc]

    async def names(self, folder: str) -> list[str]:
        return self.listed

    async def size(self, path: str) -> int | None:
        self.sizes = [*self.sizes[1:], self.sizes[0]]
        return self.sizes[0]

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        return self.data[:limit]
