"""Reads appended files of which old regions are compressed, as if none were."""

from __future__ import annotations

import os
from functools import lru_cache

from trainer_runtime.core.files.compacted import (
    LARGEST_ARCHIVE_BYTES,
    archive_of,
    fill_holes,
    regions_with_holes,
    unpack,
)
from trainer_runtime.core.files.regular import READING, read_opened

_NO_ARCHIVE = (FileNotFoundError, NotADirectoryError, ValueError)


def read_at(descriptor: int, path: str, offset: int, length: int) -> bytes:
    """The bytes from `offset` on of the file opened from `path`, fewer only at the file's end.

    The file is read before its archives are opened, and an archive is complete before its
    region becomes a hole: what is compressed meanwhile is read all the same. Zeros of no archive,
    as a power cut leaves them, stay zeros.

    Raises:
        OSError: the file or an archive can't be read.
    """
    data = os.pread(descriptor, length, offset)
    while 0 < len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    regions = {}
    for begin in regions_with_holes(offset, data):
        try:
            regions[begin] = read_archive(archive_of(path, begin))
        except _NO_ARCHIVE:
            continue
    return fill_holes(offset, data, regions) if regions else data


def read_archive(path: str) -> bytes:
    """The region that an archive holds.

    Raises:
        OSError: it can't be read, or is missing.
        ValueError: it is damaged.
    """
    status = os.lstat(path)
    return _region(path, (status.st_ino, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=2)  # a journal and an attempt's events are read in turns, piece by piece
def _region(path: str, identity: tuple[int, int, int]) -> bytes:
    packed = read_opened(os.open(path, READING | os.O_NOFOLLOW), LARGEST_ARCHIVE_BYTES)
    region = None if len(packed) > LARGEST_ARCHIVE_BYTES else unpack(packed)
    if region is None:
        raise ValueError(f"{path} is damaged")
    return region
