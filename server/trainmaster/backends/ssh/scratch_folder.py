"""A temporary folder of this process, removed also after a kill."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.files.durable import try_lock

# A unix socket's path has at most 104 bytes on some systems, and ssh adds 17 while creating it.
_LONGEST_PATH = 80
_PREFIX = "tm-ssh-"
_LOCK = "lock"
# Much longer than from a folder's creation to its lock.
_YOUNG_S = 60.0


class ScratchFolder:
    """A new folder with mode 0700 at `path`: in the default location unless that path is too long.

    Creating one removes those of killed processes.
    """

    def __init__(self) -> None:
        sweep()
        path = tempfile.mkdtemp(prefix=_PREFIX)
        if len(path) > _LONGEST_PATH:
            os.rmdir(path)
            path = tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp")
        self.path = Path(path)
        self._lock = try_lock(self.path / _LOCK)

    def remove(self) -> None:
        """Remove it and its contents. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def sweep() -> None:
    """Remove this user's folders of ended processes."""
    for place in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(place).glob(f"{_PREFIX}*"):
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
