"""Ports that note whatever is done through them, other than reading: to a host, at Kaggle, and as
processes of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from support.kaggle.fake_client import FakeKaggle

from trainmaster.backends.hosts import Host, LocalHost
from trainmaster.backends.kaggle.client import KernelPush, Pushed
from trainmaster.backends.launchers import Job, JobState
from trainmaster.backends.launchers.process import ProcessLauncher
from trainmaster.backends.ssh import Completed, Stream
from trainmaster.errors.errors import HostError

# Commands of the runtime that only read.
READS = frozenset(
    {"check", "corpus", "digest", "facts", "files", "follow", "image", "input", "verify"}
)
# What libraries start when they are imported, or first used, to find others.
_PROBES = frozenset({"cc", "gcc", "ld", "objdump", "ldconfig", "uname", "fc-list"})
_ASKS = (["-V"], ["--version"], ["-l"], ["--user", "show-environment"])
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system", "os.exec"})


class WrittenError(Exception):
    """Raised in place of starting a process."""


class RecordingHost(LocalHost):
    """A folder of this machine as another one. `away`: nothing can be written there."""

    def __init__(self, name: str, root: Path, written: list[str]) -> None:
        super().__init__(name, root)
        self.away = False
        self._written = written

    async def place_runtime(self) -> str:
        self._note("place_runtime")
        return await super().place_runtime()

    async def put_folder(
        self, folder: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        self._note(f"put_folder {folder}")
        await super().put_folder(folder, files, executable)

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        self._note(f"put_file {path}")
        await super().put_file(path, data, mode=mode)

    async def remove(self, path: str) -> int:
        self._note(f"remove {path}")
        return await super().remove(path)

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        self._note_command(command)
        return await super().run(command, folder=folder, timeout_s=timeout_s, stdin=stdin)

    @asynccontextmanager
    async def stream(self, command: Sequence[str], *, folder: str) -> AsyncIterator[Stream]:
        self._note_command(command)
        async with super().stream(command, folder=folder) as stream:
            yield stream

    def _note(self, what: str) -> None:
        self._written.append(f"{self.name}: {what}")
        if self.away:
            raise HostError("HOST_UNREACHABLE", f"{self.name} is away.", "Wait.", retryable=True)

    def _note_command(self, command: Sequence[str]) -> None:
        if not is_read(command):
            self._note(" ".join(command))


class RecordingLauncher(ProcessLauncher):
    """Notes that a supervisor is to be started, and starts none. `living`: the folders of runs
    that have one."""

    def __init__(self, written: list[str]) -> None:
        self.living: set[str] = set()
        self._written = written

    async def submit(self, host: Host, folder: str) -> bool:
        self._written.append(f"{host.name}: supervisor {folder}")
        return True

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        self._written.append(f"{host.name}: which of {len(folders)} are supervised")
        return {folder: Job(JobState.RUNNING) for folder in folders if folder in self.living}


class RecordingKaggle(FakeKaggle):
    def __init__(self, written: list[str]) -> None:
        super().__init__()
        self._written = written

    async def push(self, push: KernelPush) -> Pushed:
        self._written.append(f"kaggle: push {push.slug}")
        return await super().push(push)

    async def put_dataset(self, slug: str, title: str, folder: Path) -> str:
        self._written.append(f"kaggle: put_dataset {slug}")
        return await super().put_dataset(slug, title, folder)

    async def remove_dataset(self, slug: str) -> None:
        self._written.append(f"kaggle: remove_dataset {slug}")
        await super().remove_dataset(slug)


def is_read(command: Sequence[str]) -> bool:
    """Whether a command only reads the machine that it runs on."""
    words = [os.fsdecode(word) for word in command]
    if Path(words[0]).name in _PROBES or words[1:] in _ASKS:
        return True
    if "trainer_runtime" not in words:
        return False
    rest = words[words.index("trainer_runtime") + 1 :]
    return (rest[:1] == ["try"] and "--write" not in rest) or bool(READS & set(rest[:1]))


@contextmanager
def refusing_processes(written: list[str]) -> Iterator[None]:
    """Inside, no process is started by this one but to read; what is tried is noted."""
    _Starts.install()
    before, _Starts.written = _Starts.written, written
    try:
        yield
    finally:
        _Starts.written = before


class _Starts:
    """The one audit hook: Python takes none away again."""

    written: list[str] | None = None
    _installed = False

    @classmethod
    def install(cls) -> None:
        if not cls._installed:
            cls._installed = True
            sys.addaudithook(cls._audit)

    @classmethod
    def _audit(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.written is None or event not in _STARTS:
            return
        command = arguments[1] if event != "os.fork" else ["fork"]
        command = [command] if isinstance(command, (str, bytes)) else list(command)
        if not is_read(command):
            tried = f"{event} {' '.join(os.fsdecode(word) for word in command)}"
            cls.written.append(tried)
            raise WrittenError(tried)
