"""Where a sparse file has text: what was never written reads as zeros, and is none."""

from __future__ import annotations

import errno
import os

_MOST_REGIONS = 256


def data_region(descriptor: int, offset: int) -> tuple[int, int] | None:
    """The first and the last byte, exclusive, of the next data from `offset` on; None: there is
    none up to the file's end. Where the file system doesn't say, all of the file is data."""
    try:
        begin = os.lseek(descriptor, offset, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return offset, max(offset, os.fstat(descriptor).st_size)


def next_text(descriptor: int, offset: int, most_bytes: int) -> tuple[int, bytes] | None:
    """The next text from `offset` on, and where it begins; None where only zeros follow.

    Zeros before a hole, or before the file's end, are left out: text may come to stand there. The
    text is empty where many regions had none: it is searched on from there.

    Raises:
        OSError: the file can't be read.
    """
    for _ in range(_MOST_REGIONS):
        region = data_region(descriptor, offset)
        if region is None:
            return None
        begin, end = region
        data = os.pread(descriptor, min(most_bytes, end - begin), begin)
        if begin + len(data) >= end:
            data = data.rstrip(b"\0")
        if data:
            return begin, data
        if end >= os.fstat(descriptor).st_size:
            return None
        offset = end
    return offset, b""
