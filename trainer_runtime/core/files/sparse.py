"""Where a sparse file has data: what was never written reads as zeros, and is no text."""

from __future__ import annotations

import errno
import os


def data_region(descriptor: int, offset: int) -> tuple[int, int] | None:
    """The first and the last byte, exclusive, of the next data from `offset` on; None: there is
    none up to the file's end. Where the file system doesn't say, all of the file is data."""
    try:
        begin = os.lseek(descriptor, offset, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return offset, os.fstat(descriptor).st_size
