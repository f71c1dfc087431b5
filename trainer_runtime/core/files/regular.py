"""Reads regular files that somebody else may have put there: never a pipe, which would block."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The first `max_bytes` of a regular file and one more byte, by which a longer one is known.

    Raises:
        OSError: it can't be read, or is a folder, a pipe or a device.
    """
    return read_opened(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), max_bytes)


def read_opened(descriptor: int, max_bytes: int) -> bytes:
    """The same of an open file, which is closed then.

    Raises:
        OSError: as `read_regular`.
    """
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        pieces, left = [], max_bytes + 1
        while left > 0 and (piece := file.read(left)):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)
