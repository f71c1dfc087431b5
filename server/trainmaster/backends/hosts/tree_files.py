"""The files of a tree that is sent: listed once, read once, refused where they change meanwhile."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.unlinked import open_unlinked
from trainmaster.backends.hosts.kept_runtime import PACKAGE, READ_ONLY
from trainmaster.errors.errors import PlanError

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TreeFile:
    """One file to send. `name` is its path below the destination; `source` its bytes or its real
    path, which is opened without following a link.

    `modified_ns` is given to the copy, and None for bytes, which are known by their `sha256`.
    `inode`, with its device: of the file that was listed.
    """

    name: str
    size_bytes: int
    modified_ns: int | None
    mode: int
    sha256: str | None
    source: bytes | Path
    inode: tuple[int, int] | None = None


def list_tree(
    local: Path | Mapping[str, bytes] | Sequence[TreeFile], executable: frozenset[str]
) -> Sequence[TreeFile]:
    """The files of a folder, of contents by name, or those that were listed one by one.

    Raises:
        OSError: a file or folder can't be read.
    """
    if isinstance(local, Path):
        return files_of_folder(local)
    if isinstance(local, Mapping):
        return [
            TreeFile(
                name=name,
                size_bytes=len(data),
                modified_ns=None,
                mode=_mode(name, executable),
                sha256=hashlib.sha256(data).hexdigest(),
                source=data,
            )
            for name, data in local.items()
        ]
    return local


def files_of_folder(folder: Path) -> list[TreeFile]:
    """The regular files of a folder, by name; links are left out.

    Raises:
        OSError: a file or folder can't be read.
    """
    files = []
    folder = Path(os.path.realpath(folder))
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                relative = path.relative_to(folder).as_posix()
                files.append(file_at(path, relative, status))
    return files


def file_at(path: Path, name: str, status: os.stat_result) -> TreeFile:
    """A file at a real path as one to send, as it was when `status` was taken; the receiving user
    can read it."""
    mode = stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRUSR
    inode = (status.st_dev, status.st_ino)
    return TreeFile(name, status.st_size, status.st_mtime_ns, mode, None, path, inode)


class Contents:
    """A file's bytes from the beginning on, hashed as they are read.

    Raises, each method: PlanError `DATA_CHANGED` where the file is not as it was listed; OSError.
    """

    def __init__(self, file: TreeFile) -> None:
        self._file = file
        self._offset = 0
        self._hasher = hashlib.sha256()
        self._descriptor = None
        if isinstance(file.source, Path):
            self._descriptor = open_unlinked(file.source)
            self._check()

    def skip(self, length: int) -> str | None:
        """Read over the first `length` bytes; their digest, None for none."""
        while self._offset < length and self._take(min(BLOCK_BYTES, length - self._offset)):
            continue
        return self.digest() if length else None

    def restart(self) -> None:
        self._offset = 0
        self._hasher = hashlib.sha256()

    def read(self) -> bytes:
        """The next block; empty at the end, where the file still is what was listed."""
        data = self._take(min(BLOCK_BYTES, self._file.size_bytes - self._offset))
        if not data:
            self._check()
            if self._offset != self._file.size_bytes:
                raise changed(self._file, "became shorter")
        return data

    def digest(self) -> str:
        return self._hasher.hexdigest()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _take(self, limit: int) -> bytes:
        if isinstance(self._file.source, bytes):
            data = self._file.source[self._offset : self._offset + limit]
        else:
            data = os.pread(self._descriptor or 0, limit, self._offset)
        self._hasher.update(data)
        self._offset += len(data)
        return data

    def _check(self) -> None:
        if self._descriptor is None:
            return
        status = os.fstat(self._descriptor)
        listed = (self._file.size_bytes, self._file.modified_ns, self._file.inode)
        if (status.st_size, status.st_mtime_ns, (status.st_dev, status.st_ino)) != listed:
            raise changed(self._file, "changed")


def changed(file: TreeFile, what: str) -> PlanError:
    return PlanError(
        "DATA_CHANGED",
        f"{file.source if isinstance(file.source, Path) else file.name} {what} while it was sent.",
        "Leave the files alone while they are sent, and start again.",
    )


def _mode(name: str, executable: frozenset[str]) -> int:
    if name.startswith(PACKAGE):
        return READ_ONLY
    return 0o700 if name in executable else 0o600


def _raise(error: OSError) -> None:
    raise error
