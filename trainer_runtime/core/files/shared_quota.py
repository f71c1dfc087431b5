"""A total that several processes write towards: they share one count, in a file."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.files.durable import lock_within

_SHARE_BYTES = 4 << 20
_MEASURED_EVERY_S = 600.0
_LOCK_S = 10.0
_LONGEST_NOTE_BYTES = 4096


class SharedQuota:
    """What all may still grow by.

    Each process reserves a share before it writes. The disk itself is measured every ten minutes,
    and before anything is refused; what others have reserved by then and not written is forgotten,
    so that they may exceed the total by one share each.
    """

    def __init__(self, note: Path, limit: Callable[[], int], measure: Callable[[], int]) -> None:
        """`note`: the file of the count; `measure`: the bytes that the disk holds now."""
        self._note, self._limit, self._measure = note, limit, measure
        self._share_bytes = 0

    def take(self, more_bytes: int) -> bool:
        """Count these bytes as written; False, and nothing counted, where the total is reached.

        Raises:
            OSError: the count can't be kept at the moment.
        """
        missing = more_bytes - self._share_bytes
        if missing > 0 and not self._enlarge_share(missing):
            return False
        self._share_bytes -= more_bytes
        return True

    def _enlarge_share(self, missing_bytes: int) -> bool:
        limit = self._limit()
        wanted = max(missing_bytes, _SHARE_BYTES)
        with _locked_file(self._note) as file:
            now = time.time()
            t, counted = _read(file)
            if counted + wanted > limit or not 0 <= now - t < _MEASURED_EVERY_S:
                t, counted = now, self._measure()
            if counted + wanted > limit:
                wanted = missing_bytes
            fits = counted + wanted <= limit
            _write(file, t, counted + wanted if fits else counted)
        self._share_bytes += wanted if fits else 0
        return fits


@contextmanager
def _locked_file(path: Path) -> Iterator[int]:
    """A descriptor of this file, which no other process has meanwhile."""
    file = lock_within(path, _LOCK_S)
    if file is None:
        raise OSError(errno.EAGAIN, f"another process keeps {path.name}")
    try:
        yield file
    finally:
        os.close(file)


def _read(file: int) -> tuple[float, int]:
    """When the disk was measured, and what is counted since; long ago where nothing is noted."""
    try:
        noted = decode_fields(os.pread(file, _LONGEST_NOTE_BYTES, 0), "the count of a quota")
        return noted.time("t"), noted.integer("bytes")
    except DecodingError:
        return -math.inf, 0


def _write(file: int, t: float, counted: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, f'{{"t": {t:.3f}, "bytes": {counted}}}'.encode(), 0)
