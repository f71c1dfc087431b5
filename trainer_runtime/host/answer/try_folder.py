"""Checks whether a folder for later copies can be written."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

_TRIED_BYTES = 4096


def try_folder(folder: Path, *, write: bool) -> dict[str, Any]:
    """`problem`: why nothing can be written there, None where it can.

    `write`: by writing there, which leaves nothing behind; else by the folder's permissions alone.
    One that is not there yet is judged by the nearest folder above that is.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    return {"problem": _write(existing) if write else _permission(existing)}


def _permission(existing: Path) -> str | None:
    file_system = os.statvfs(existing)
    if not existing.is_dir():
        reason = errno.ENOTDIR
    elif file_system.f_flag & os.ST_RDONLY:
        reason = errno.EROFS
    elif file_system.f_blocks == 0 and not existing.stat().st_mode & 0o222:
        reason = errno.EPERM  # the kernel's own, such as /proc, whatever root may do
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = errno.EACCES
    else:
        return None
    return f"{existing} can't be written: {os.strerror(reason)}"


def _write(existing: Path) -> str | None:
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".trainmaster-", dir=existing) as made,
            Path(made, "tried").open("wb") as file,
        ):
            file.write(b"\0" * _TRIED_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{existing} can't be written: {error.strerror}"
    return None
