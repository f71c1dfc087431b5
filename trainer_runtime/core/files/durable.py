"""Files that survive a kill or a power cut at any moment, and locks that a kill frees.

With the corpus's listing and the manifest's check, the part of `core` that touches a disk: both
sides must do these things in exactly one way.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from pathlib import Path

_OPEN_FOR_S = 2.0
# Why a folder can't be removed while others still use it or remove from it too.
_CHANGING = (errno.ENOTEMPTY, errno.EBUSY, errno.ENOENT)


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`, wholly or not at all: temp, flush, fsync, replace, fsync folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_tree(path: Path) -> int:
    """Remove a file or folder; the bytes that this freed, 0 where there was none.

    Links are removed themselves, never what they lead to.

    Raises:
        OSError: something of it can't be removed.
    """
    if path.is_dir() and not path.is_symlink():
        freed = sum(map(_size, path.rglob("*")))
        _remove_folder(path)
        return freed
    if not path.exists() and not path.is_symlink():
        return 0
    freed = path.lstat().st_size
    path.unlink()
    return freed


def _size(file: Path) -> int:
    """Its bytes; 0 for a folder, and for what was removed meanwhile."""
    try:
        return 0 if file.is_dir() else file.lstat().st_size
    except FileNotFoundError:
        return 0


def _remove_folder(path: Path) -> None:
    """On NFS, a file that is open stays under another name until it is closed: followers close what
    is gone within a second. A process that ends may remove its own files meanwhile."""
    deadline = time.monotonic() + _OPEN_FOR_S
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError as error:
            if error.errno not in _CHANGING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def write_synced(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a new file, its folders too, through to the disk; it counts once it is in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """An open descriptor that holds `path`, made where it is missing; None while another does.

    The kernel frees it when the last process that holds the descriptor is gone, kill -9 included.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def lock_within(path: Path, bound_s: float) -> int | None:
    """`try_lock` with retries, since `is_locked` in another process holds the lock briefly."""
    deadline = time.monotonic() + bound_s
    while (lock := try_lock(path)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return lock


def is_locked(path: Path) -> bool:
    """Whether a process holds it; if none does, the check itself takes it for a moment."""
    if not path.exists():
        return False
    lock = try_lock(path)
    if lock is not None:
        os.close(lock)
    return lock is None
