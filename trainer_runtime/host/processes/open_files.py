"""Lists which process has which file open, as far as `/proc` shows it to this user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.host.processes.identity import ProcessIdentity, identify

_WRITES = (os.O_WRONLY, os.O_RDWR)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """One descriptor of a process; `path` is what its link in `/proc` says."""

    descriptor: int
    path: str
    device: int
    inode: int
    mode: int
    writes: bool

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)


def writers(path: Path) -> list[ProcessIdentity]:
    """The live processes that have the file open for writing, this one aside."""
    try:
        status = path.stat()
    except OSError:
        return []
    processes = []
    for pid in pids():
        if pid == os.getpid() or not _has_open(pid, status):
            continue
        if any(
            (file.device, file.inode) == (status.st_dev, status.st_ino) and file.writes
            for file in open_files(pid)
        ):
            process = identify(pid)
            if process is not None:
                processes.append(process)
    return processes


def open_files(pid: int) -> list[OpenFile]:
    """What a process has open; nothing where that can't be seen.

    A file that was removed since is left out.
    """
    files = []
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    for name in names:
        file = open_file(pid, int(name))
        if file is not None:
            files.append(file)
    return files


def open_file(pid: int, descriptor: int) -> OpenFile | None:
    """One descriptor of a process; None where it has none such, or it can't be seen."""
    link = f"/proc/{pid}/fd/{descriptor}"
    try:
        path, status = os.readlink(link), os.stat(link)
        info = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    except OSError:
        return None
    flags = next((line.split()[1] for line in info.splitlines() if line.startswith("flags:")), "0")
    writes = int(flags, 8) & os.O_ACCMODE in _WRITES
    return OpenFile(descriptor, path, status.st_dev, status.st_ino, status.st_mode, writes)


def readers_of_pipe(inode: int) -> Iterator[int]:
    """The processes that read a pipe as their standard input."""
    for pid in pids():
        file = open_file(pid, 0)
        if file is not None and stat.S_ISFIFO(file.mode) and file.inode == inode:
            yield pid


def pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def variables_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it can't be seen."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _has_open(pid: int, status: os.stat_result) -> bool:
    """Whether the process has the file open at all: asked first, since it costs the least."""
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                other = entry.stat()
            except OSError:
                continue
            if (other.st_ino, other.st_dev) == (status.st_ino, status.st_dev):
                return True
    except OSError:
        pass
    return False
