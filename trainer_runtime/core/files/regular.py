"""Reads regular files that somebody else may have put there: never a pipe, which would block."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from trainer_runtime.core.files.reading import check_reading

# A pipe opens at once; whether it is one is seen then.
READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
NOT_REGULAR = "it is not a regular file"
_PIECE_BYTES = 4 << 20


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The first `max_bytes` of a regular file and one more byte, by which a longer one is known.

    Raises:
        OSError: it can't be read, or is a folder, a pipe or a device; and as the caller's check of
            its reading.
    """
    return read_opened(os.open(path, READING), max_bytes)


def read_opened(descriptor: int, max_bytes: int) -> bytes:
    """The same of an open file, which is closed then.

    Raises:
        OSError: as `read_regular`.
    """
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not _is_regular(descriptor):
            raise OSError(errno.EINVAL, NOT_REGULAR)
        pieces, left = [], max_bytes + 1
        while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
            check_reading()
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; a pipe, socket or device in its place counts as missing.

    Raises:
        OSError: it is missing or can't be read; and as the caller's check of its reading.
    """
    check_reading()
    missing = FileNotFoundError(errno.ENOENT, NOT_REGULAR, str(path))
    try:
        descriptor = os.open(path, READING)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise missing from error
        raise
    if not _is_regular(descriptor):
        os.close(descriptor)
        raise missing
    return os.fdopen(descriptor, "rb")


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
