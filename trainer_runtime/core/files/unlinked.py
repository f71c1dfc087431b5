"""Opens files by real paths, folder by folder: a part that became a link by now is not followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

# Passing through a folder takes no right to list it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe opens at once; whether it is one is seen then.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnlinkedPaths:
    """Opens absolute real paths. Holds the last file's folder open, for the next one in it."""

    def __init__(self) -> None:
        self._folder, self._descriptor = "", -1

    def status(self, path: str) -> os.stat_result:
        """What lies at `path` itself, be it a link.

        Raises:
            OSError: nothing does, or a folder on the way is a link.
        """
        folder, _, name = path.rpartition("/")
        return os.stat(name, dir_fd=self._enter(folder), follow_symlinks=False)

    def open(self, path: str) -> int:
        """A descriptor of the regular file at `path`, for reading.

        Raises:
            OSError: there is none, or a part of the path is a link.
        """
        folder, _, name = path.rpartition("/")
        descriptor = os.open(name, _FILE, dir_fd=self._enter(folder))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._folder, self._descriptor = "", -1

    def _enter(self, folder: str) -> int:
        if self._descriptor >= 0 and folder == self._folder:
            return self._descriptor
        self.close()
        descriptor = os.open("/", _FOLDER)
        for part in folder.split("/")[1:]:
            try:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
        self._folder, self._descriptor = folder, descriptor
        return descriptor


@contextmanager
def unlinked_paths() -> Iterator[UnlinkedPaths]:
    """The same, closed at the end."""
    paths = UnlinkedPaths()
    try:
        yield paths
    finally:
        paths.close()


def open_unlinked(path: Path) -> int:
    """A descriptor of the regular file at one real path, for reading.

    Raises:
        OSError: as `UnlinkedPaths.open`.
    """
    with unlinked_paths() as paths:
        return paths.open(str(path))


def read_unlinked(path: Path) -> BufferedReader:
    """The same as a file object."""
    return os.fdopen(open_unlinked(path), "rb")
