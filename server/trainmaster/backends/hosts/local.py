"""This machine as a host."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.files.durable import remove_tree, sync_folder, write_atomic
from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.backends.hosts.kept_runtime import PACKAGE, put_runtime
from trainmaster.backends.hosts.written_files import write_files
from trainmaster.backends.ssh import Completed
from trainmaster.backends.ssh.bounded_output import read_bounded
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets
from trainmaster.store.disk_space import is_full

_LET_GO_S = 2.0


class LocalHost:
    """Files by the file system, commands as child processes."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self._root = str(root)

    async def root(self) -> str:
        return self._root

    async def cache(self) -> str:
        return f"{self._root}/cache"

    async def python(self) -> str:
        return sys.executable

    async def runtime(self) -> str:
        return str(find_assets().runtime.parent)

    async def place_runtime(self) -> str:
        return await self.runtime()

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        if Path(folder).is_dir() and shutil.which(command[0]) is None:
            return Completed(127, "", f"{command[0]}: not found")
        try:
            async with (
                self.stream(command, folder=folder) as stream,
                asyncio.timeout(timeout_s),
            ):
                output = await stream.capture(stdin)
                code, errors = await stream.end()
        except TimeoutError:
            return Completed(124, "", f"no answer within {spoken_duration(timeout_s)}")
        return Completed(code, output.decode(errors="replace"), errors)

    @asynccontextmanager
    async def stream(self, command: Sequence[str], *, folder: str) -> AsyncIterator[_ProcessStream]:
        with _host_errors(folder):
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        stream = _ProcessStream(process, self.name)
        try:
            yield stream
        finally:
            if process.returncode is None:  # it timed out, was cancelled, or printed too much
                with suppress(ProcessLookupError):
                    process.kill()
                await stream.let_go()

    async def put_folder(
        self, folder: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        target = Path(folder)
        if target.exists():
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        runtime = {name: data for name, data in files.items() if name.startswith(PACKAGE)}
        others = {name: data for name, data in files.items() if name not in runtime}
        with _host_errors(folder):
            try:
                write_files(temporary, others, executable)
                if runtime:
                    put_runtime(Path(await self.cache()), runtime, temporary)
                os.rename(temporary, target)
                sync_folder(target.parent)
            except OSError:
                shutil.rmtree(temporary, ignore_errors=True)
                if not target.exists():  # else another process placed the same
                    raise

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        with _host_errors(path):
            write_atomic(Path(path), data, mode)

    async def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(limit)
        except (FileNotFoundError, NotADirectoryError):
            return b""

    async def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    async def remove(self, path: str) -> int:
        with _host_errors(path):
            return await asyncio.to_thread(remove_tree, Path(path))

    async def disconnect(self) -> None:
        return


class _ProcessStream:
    """A child process as a stream."""

    def __init__(self, process: asyncio.subprocess.Process, host: str) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the process was started without pipes")
        self._process = process
        self._input, self._output = process.stdin, process.stdout
        self._error_output = process.stderr
        self._host = host
        self._errors = asyncio.create_task(read_bounded(process.stderr.read, host))

    async def write(self, data: bytes) -> None:
        # A process that has ended reports by its output and its code, not by a broken pipe.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._input.write(data)
            await self._input.drain()

    async def finish(self) -> None:
        self._input.close()

    async def read(self, limit: int) -> bytes:
        return await self._output.read(limit)

    async def capture(self, data: bytes) -> bytes:
        """Write `data`, and read all of the output meanwhile.

        Raises:
            HostError: `HOST_DATA_REFUSED`, it is too large.
        """
        feeding = asyncio.create_task(self._feed(data))
        try:
            return await read_bounded(self.read, self._host)
        finally:
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding

    async def _feed(self, data: bytes) -> None:
        await self.write(data)
        await self.finish()

    async def let_go(self) -> None:
        """Wait for the end of a process that was killed; what it has written is read for that,
        since asyncio waits for the pipes' ends too, which the process's children may hold."""
        self._input.close()
        self._errors.cancel()
        with suppress(asyncio.CancelledError, HostError):
            await self._errors
        with suppress(TimeoutError):
            async with asyncio.timeout(_LET_GO_S):
                for pipe in (self._output, self._error_output):
                    while await pipe.read(1 << 20):
                        continue
                await self._process.wait()

    async def end(self) -> tuple[int, str]:
        errors = await self._errors
        return await self._process.wait(), errors.decode(errors="replace")


@contextmanager
def _host_errors(path: str) -> Iterator[None]:
    """Turn an I/O error into an error with a remedy."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise HostError(
                "DISK_FULL",
                f"The disk is full: {path} can't be written.",
                "Free some room, or point TRAINMASTER_HOME at another disk.",
                retryable=True,
            ) from error
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"{path} can't be written: {error.strerror}.",
            "Make the folder writable, or point TRAINMASTER_HOME elsewhere.",
        ) from error
