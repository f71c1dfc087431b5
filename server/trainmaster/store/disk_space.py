"""Why a file system takes no more: no space, no inodes, a quota, or only reading."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

DISK_FULL, NO_INODES, NOT_WRITABLE = "DISK_FULL", "NO_INODES", "ROOT_NOT_WRITABLE"
LACKS = frozenset({DISK_FULL, NO_INODES, NOT_WRITABLE})
REMEDIES = {
    DISK_FULL: "Free disk space",
    NO_INODES: "Remove files from that file system",
    NOT_WRITABLE: "Make the folder writable (mount its file system for writing)",
}
_LEAST_FREE_BYTES = 1 << 20
_SQLITE_FULL = 13  # as in sqlite3, which a server need not import at its start
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE_BYTES = 64 << 10


def lack_of_room(folder: Path, error: OSError | sqlite3.Error) -> tuple[str, str | None]:
    """The code of an error in writing below `folder`, and its reason where the file system has one.

    SQLite reports an input/output error where its log's index finds no room, so the file system is
    asked, too.
    """
    reason = why_full(folder)
    if reason is not None:
        return reason
    if isinstance(error, OSError):
        return DISK_FULL if is_full(error) else NOT_WRITABLE, None
    if getattr(error, "sqlite_errorcode", None) == _SQLITE_FULL:
        return DISK_FULL, None
    return _why_unwritten(folder) or (NOT_WRITABLE, None)


def is_full(error: OSError) -> bool:
    """Whether the file system has no room for it, or the quota of the user, group or folder."""
    return error.errno in _FULL


def is_lack_of_room(error: OSError) -> bool:
    """Whether the file system takes no more, from any process."""
    return is_full(error) or error.errno == errno.EROFS


def takes_more(folder: Path) -> bool:
    """Whether new files can be written in a folder."""
    return why_unwritable(folder) is None


def why_unwritable(folder: Path) -> tuple[str, str | None] | None:
    """Why new files can't be written in a folder, as `why_full` says it; None where they can."""
    return why_full(folder) or _why_unwritten(folder)


def _why_unwritten(folder: Path) -> tuple[str, str | None] | None:
    """Why a small file can't be written in a folder; None where it can. Neither what a file system
    says of itself nor SQLite's errors name a quota."""
    import tempfile  # 10 ms that a command need not pay at its start

    try:
        with tempfile.TemporaryFile(dir=_existing(folder)) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return DISK_FULL if is_full(error) else NOT_WRITABLE, error.strerror
    return None


def _existing(path: Path) -> Path:
    """The nearest folder that exists: in its file system new ones would be created."""
    return next(place for place in (path, *path.parents) if os.path.isdir(place))


def inodes_left(folder: Path) -> int | None:
    """How many more files its file system takes; None where it has no such limit."""
    status = os.statvfs(folder)
    return status.f_favail if status.f_files else None


def why_full(folder: Path) -> tuple[str, str] | None:
    """Why a file system takes no more: the error's code, and the reason; None where it does."""
    try:
        status = os.statvfs(_existing(folder))
    except OSError:
        return None
    if status.f_flag & os.ST_RDONLY:
        return NOT_WRITABLE, "its file system is mounted read-only"
    if status.f_files and status.f_favail == 0:
        used = status.f_files - status.f_ffree
        return NO_INODES, f"no inodes are left: its file system holds {used:,} files and folders"
    if status.f_bavail * status.f_frsize < _LEAST_FREE_BYTES:
        return DISK_FULL, "no space is left on its disk"
    return None
