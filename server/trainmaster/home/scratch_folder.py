"""A temporary folder of this process, removed also after a kill."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.files.durable import try_lock

_LOCK = "lock"
# Much longer than from a folder's creation to its lock.
_YOUNG_S = 60.0


class ScratchFolder:
    """A new folder with mode 0700 at `path`: in the default location, or below `/tmp` where that
    path is longer than `longest`.

    Creating one removes those with its prefix of killed processes.
    """

    def __init__(self, prefix: str, longest: int | None = None) -> None:
        _sweep(prefix)
        path = tempfile.mkdtemp(prefix=prefix)
        if longest is not None and len(path) > longest:
            os.rmdir(path)
            path = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
        self.path = Path(path)
        self._lock = try_lock(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it and its contents. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """The real path of an empty folder, removed afterwards, at the latest by the next one."""
    scratch = ScratchFolder(prefix)
    try:
        folder = Path(os.path.realpath(scratch.path), "files")
        folder.mkdir()
        yield folder
    finally:
        scratch.remove()


def _sweep(prefix: str) -> None:
    """Remove this user's folders of ended processes."""
    for place in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(place).glob(f"{prefix}*"):
            with suppress(OSError):
                if _is_left(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    status = folder.lstat()
    if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        return False
    if not (folder / _LOCK).exists() and time.time() - status.st_mtime < _YOUNG_S:
        return False
    lock = try_lock(folder / _LOCK)
    if lock is None:
        return False
    os.close(lock)
    return True
