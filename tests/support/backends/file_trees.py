"""Trees of files that are put somewhere, and what arrived of them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import run_async

from trainmaster.backends.hosts import LocalHost, Stream
from trainmaster.backends.hosts.trees import Sent, put_tree
from trainmaster.errors.errors import TrainmasterError


class CuttableHost(LocalHost):
    """Kills the receiving side once it has been sent so many bytes."""

    def __init__(self, cut_after_bytes: int | None = None) -> None:
        super().__init__("host", Path("/"))
        self._left = cut_after_bytes

    @asynccontextmanager
    async def stream(self, command: Sequence[str], *, folder: str) -> AsyncIterator[Stream]:
        noted = "import os;open(3,'w').write(str(os.getpid()));"
        read, write = os.pipe()
        shell = ["sh", "-c", f'exec "$0" "$@" 3>/proc/{os.getpid()}/fd/{write}']
        wrapped = [command[0], "-c", noted + command[2], *command[3:]]
        async with super().stream([*shell, *wrapped], folder=folder) as stream:
            try:
                yield _Cutting(stream, self, read)
            finally:
                os.close(read)
                os.close(write)

    def spend(self, size: int) -> bool:
        """True when the allowance is used up by these bytes."""
        if self._left is None:
            return False
        self._left -= size
        return self._left <= 0


class _Cutting:
    def __init__(self, stream: Stream, host: CuttableHost, pid_pipe: int) -> None:
        self._stream, self._host, self._pid_pipe = stream, host, pid_pipe

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), 10_000):
            piece = data[start : start + 10_000]
            await self._stream.write(piece)
            if self._host.spend(len(piece)):
                pid = int(await asyncio.to_thread(os.read, self._pid_pipe, 20))
                os.kill(pid, signal.SIGKILL)
                self._host.__init__()  # type: ignore[misc]

    async def finish(self) -> None:
        await self._stream.finish()

    async def read(self, limit: int) -> bytes:
        return await self._stream.read(limit)

    async def end(self) -> tuple[int, str]:
        return await self._stream.end()


def put(local: Any, destination: Path, host: LocalHost | None = None, **options: Any) -> Sent:
    chosen = host or LocalHost("local", Path("/"))
    return run_async(lambda: put_tree(chosen, local, str(destination), **options))


def refused(local: Any, destination: Path, **options: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        put(local, destination, **options)
    return caught.value


def described(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Content, time of change and mode of each file by name."""
    return {
        path.relative_to(folder).as_posix(): (
            path.read_bytes(),
            path.lstat().st_mtime_ns,
            stat.S_IMODE(path.lstat().st_mode),
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def make_tree(folder: Path, seed: int, files: int = 20, largest_bytes: int = 200_000) -> Path:
    chosen = random.Random(seed)
    print(f"tree of seed {seed}")
    for number in range(files):
        path = folder / f"part {number % 3}" / f"ünï-{number}\n.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chosen.randbytes(chosen.randrange(largest_bytes)))
        path.chmod(chosen.choice([0o644, 0o755, 0o600]))
        os.utime(path, ns=(0, chosen.randrange(10**18, 2 * 10**18)))
    (folder / "empty").touch()
    return folder
