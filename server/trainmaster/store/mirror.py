"""The mirror: byte-for-byte copies of a placement's files, which outlive its host.

`mirror_writer` masks secrets at equal length before it writes anything. Where an original was
truncated or replaced, its earlier copy is renamed to `<name>.1`, `<name>.2` and so on, oldest
first, and `<name>` is again a copy of the original.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# Of the descriptors that a process may have, and at most.
_KEPT_SHARE, _MOST_KEPT = 1 / 2, 512
_PATTERN = "pattern"


class OpenFiles:
    """Mirrored files that are kept open while they grow: to open one costs more than to append a
    line to it. Beyond `most` in this process, by default a part of what it may have open, the file
    that was appended to longest ago is closed.

    The caller holds the host's follower lock until `close`, so that nobody else renames them.
    """

    _kept: ClassVar[int] = 0  # by all of the process

    def __init__(self, most: int | None = None) -> None:
        self._descriptors: dict[str, int] = {}
        self._most = _most_kept() if most is None else most

    def append(self, path: str, data: bytes) -> None:
        """Raises: OSError: not all bytes could be written; a partial write is undone."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is None:
            descriptor = _opened(path, os.O_APPEND)
            OpenFiles._kept += 1
        self._descriptors[path] = descriptor  # behind all others
        try:
            _write_all(descriptor, data)
        finally:
            if OpenFiles._kept > self._most:
                self._close(next(iter(self._descriptors)))

    def close(self, below: str = "") -> None:
        """Close the files whose path begins with `below`: a folder's with a slash, or one file."""
        for path in [path for path in self._descriptors if path.startswith(below)]:
            self._close(path)

    def _close(self, path: str) -> None:
        os.close(self._descriptors.pop(path))
        OpenFiles._kept -= 1


@dataclass(frozen=True, slots=True)
class PlacementMirror:
    """The mirror of one placement; its file names are those of the run's folder on the host."""

    root: Path

    def path(self, name: str) -> Path:
        return self.root / name

    def size(self, name: str) -> int:
        """Bytes mirrored so far, which is also the cursor into the original."""
        try:
            return os.stat(f"{self.root}/{name}").st_size
        except FileNotFoundError:
            return 0

    def append(self, name: str, data: bytes) -> None:
        """Append the next bytes of the original. The caller holds the host's follower lock.

        Raises:
            OSError: not all bytes could be written; a partial write is undone.
        """
        descriptor = _opened(f"{self.root}/{name}", os.O_APPEND)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes, mtime_ns: int | None = None) -> None:
        """Replace a whole file; `mtime_ns`: when the original changed.

        Not fsynced: after a power cut it is copied again.
        """
        folder, _, own_name = f"{self.root}/{name}".rpartition("/")
        temporary = f"{folder}/.{own_name}.{os.getpid()}"
        try:
            descriptor = _opened(temporary, os.O_TRUNC)
            try:
                _write_all(descriptor, data)
                if mtime_ns is not None:
                    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            finally:
                os.close(descriptor)
            os.replace(temporary, f"{folder}/{own_name}")
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def read(self, name: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes from `offset`; empty where the file has none (yet)."""
        try:
            descriptor = os.open(f"{self.root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            available = os.fstat(descriptor).st_size - offset
            return os.pread(descriptor, max(0, min(limit, available)), offset)
        finally:
            os.close(descriptor)

    def pattern(self) -> str | None:
        """The shape of the logs' lines, which the user has taught for want of metrics; no file of
        the host's."""
        try:
            return (self.root / _PATTERN).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def teach(self, pattern: str) -> None:
        self.replace(_PATTERN, pattern.encode())

    def attempts(self) -> list[int]:
        """The numbers of the attempts that have mirrored files."""
        folder = self.root / "attempts"
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def generations(self, name: str) -> list[str]:
        """The file names of an appended file's generations, oldest first; the last is `name`."""
        folder, _, own_name = f"{self.root}/{name}".rpartition("/")
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            names = []
        numbers = [other.removeprefix(f"{own_name}.") for other in names if other != own_name]
        earlier = sorted(int(number) for number in numbers if number.isdecimal())
        return [*(f"{name}.{number}" for number in earlier), name]


@dataclass(frozen=True, slots=True)
class Mirror:
    """All mirrors of a home."""

    root: Path

    def of(self, run_id: str, placement: int) -> PlacementMirror:
        return PlacementMirror(self.root / run_id / f"p{placement}")

    def placements(self) -> Iterator[tuple[str, int]]:
        """Every (run, placement) that has mirrored files."""
        for run in sorted(self.root.iterdir()) if self.root.is_dir() else []:
            for folder in sorted(run.iterdir()):
                if folder.name[:1] == "p" and folder.name[1:].isdigit():
                    yield run.name, int(folder.name[1:])


def _most_kept() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _MOST_KEPT if most == resource.RLIM_INFINITY else min(_MOST_KEPT, int(most * _KEPT_SHARE))
    )


def _opened(path: str, flag: int) -> int:
    """The descriptor of a file to write, made with its folder where they are not there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, flags, 0o600)


def _write_all(descriptor: int, data: bytes) -> None:
    before: int | None = None
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            before = os.fstat(descriptor).st_size - written if before is None else before
            written += os.write(descriptor, memoryview(data)[written:])
    except OSError:
        if before is not None:
            os.ftruncate(descriptor, before)
        raise
