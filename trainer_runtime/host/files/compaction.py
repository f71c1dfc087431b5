"""Compresses old regions of appended files: first beside the file, then the region is freed.

A kill at any moment loses nothing. A region is freed (a hole is punched, so that offsets stay) only
once its archive was read back, compared and made durable; an archive whose region a kill left in
place is found by the next process. Appending continues meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from trainer_runtime.core.files.compacted import REGION_BYTES, archive_of, pack
from trainer_runtime.core.files.durable import sync_folder, write_atomic
from trainer_runtime.host.files.compacted import read_archive, read_at

# The newest bytes stay as they are: readers of a file's end need nothing else.
KEPT_BYTES = 16 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV, errno.EPERM})

Punch = Callable[[int, int, int], None]  # a descriptor, the first byte, how many


class Compaction:
    """Of one file, region by region from its beginning. One process at a time."""

    def __init__(
        self, path: Path, kept_bytes: int = KEPT_BYTES, punch: Punch | None = None
    ) -> None:
        """`punch`: frees bytes of an open file; None: as the kernel does."""
        self._path = path
        self._kept_bytes = kept_bytes
        self._punch = punch or punch_hole
        self._begin = 0
        self._is_supported: bool | None = None

    def step(self) -> bool:
        """Compress or free one region, where one is due; False where none is.

        Where the file system has no holes, nothing is compressed.

        Raises:
            OSError: the disk has no room for the archive, or fails; the file is as before.
        """
        if self._is_supported is False:
            return False
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return self._next(descriptor)
        finally:
            os.close(descriptor)

    def _next(self, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        while self._begin + REGION_BYTES + self._kept_bytes <= status.st_size:
            if not self._can_punch(descriptor, status.st_size):
                return False
            begin = self._begin
            is_done = _is_hole(descriptor, begin)
            if not is_done:
                self._compress(descriptor, begin)
            self._begin += REGION_BYTES
            if not is_done:
                return True
        return False

    def _compress(self, descriptor: int, begin: int) -> None:
        # Where a power cut has left part of the region freed, its archive has the rest.
        region = read_at(descriptor, str(self._path), begin, REGION_BYTES)
        archive = Path(archive_of(str(self._path), begin))
        if not _holds(archive, region):
            archive.parent.mkdir(exist_ok=True)
            _remove_unfinished(archive.parent)
            write_atomic(archive, pack(region))
            sync_folder(self._path.parent)
            if not _holds(archive, region):
                raise OSError(errno.EIO, "an archive differs from what was written", str(archive))
        self._punch(descriptor, begin, REGION_BYTES)

    def _can_punch(self, descriptor: int, size: int) -> bool:
        """Tried beyond the file's end, where nothing changes."""
        if self._is_supported is None:
            try:
                self._punch(descriptor, size + REGION_BYTES, REGION_BYTES)
                self._is_supported = True
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                self._is_supported = False
        return self._is_supported


def punch_hole(descriptor: int, begin: int, length: int) -> None:
    """Free these bytes of a file, which then read as zeros.

    Raises:
        OSError: the file system, or the C library, can't.
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    punch = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if punch is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    punch.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while punch(descriptor, _KEEP_SIZE | _PUNCH_HOLE, begin, length) != 0:
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def _remove_unfinished(folder: Path) -> None:
    for path in folder.glob(".*"):
        path.unlink(missing_ok=True)


def _holds(archive: Path, region: bytes) -> bool:
    try:
        return read_archive(str(archive)) == region
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _is_hole(descriptor: int, begin: int) -> bool:
    try:
        return os.lseek(descriptor, begin, os.SEEK_DATA) >= begin + REGION_BYTES
    except OSError as error:
        return error.errno == errno.ENXIO  # no data up to the end; or the file system doesn't say
