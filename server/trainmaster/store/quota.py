"""How much the mirrors may hold, so that what hosts send fills no disk: of one run, and of all.

Copies of checkpoints and final models are left out: they come only where a run asks for them, and
retention bounds them.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.files.durable import lock_within
from trainmaster.words.errors import StateError
from trainmaster.words.paths import Home
from trainmaster.words.settings import MirrorSettings, read_settings

# Once the total is reached, every run may still have this much: none stops the others.
ALWAYS_ALLOWED_BYTES = 64 << 20
# Attempts, generations of replaced files.
MOST_FILES = 50_000
_SHARE_BYTES = 4 << 20
_MEASURED_EVERY_S = 600.0
_LOCK_S = 10.0
_LONGEST_NOTE_BYTES = 4096
_NOT_COUNTED = frozenset({"checkpoints", "final"})
_GIB = 1 << 30


def run_limit_bytes(home: Home) -> int:
    """The bytes that the mirror of each run may hold."""
    return int(_settings(home).run_gib * _GIB)


class TotalQuota:
    """What all mirrors together may still grow by. Processes share one count, in a file.

    Each process reserves a share before it writes. The disk itself is measured every ten minutes,
    and before anything is refused; what others have reserved by then and not written is forgotten,
    so that they may exceed the total by one share each.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
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
        limit = int(_settings(self._home).total_gib * _GIB)
        wanted = max(missing_bytes, _SHARE_BYTES)
        with _held(self._home.mirror_usage) as file:
            now = time.time()
            t, counted = _read(file)
            if counted + wanted > limit or not 0 <= now - t < _MEASURED_EVERY_S:
                t, counted = now, used(self._home.mirror)[0]
            if counted + wanted > limit:
                wanted = missing_bytes
            fits = counted + wanted <= limit
            _write(file, t, counted + wanted if fits else counted)
        self._share_bytes += wanted if fits else 0
        return fits


@contextmanager
def _held(path: Path) -> Iterator[int]:
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
        found = decode_fields(os.pread(file, _LONGEST_NOTE_BYTES, 0), "mirror.usage")
        return found.time("t"), found.integer("bytes")
    except DecodingError:
        return -math.inf, 0


def _write(file: int, t: float, counted: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, f'{{"t": {t:.3f}, "bytes": {counted}}}'.encode(), 0)


def _settings(home: Home) -> MirrorSettings:
    try:
        return read_settings(home).mirror
    except StateError:
        return MirrorSettings()  # `doctor` reports settings that can't be read


def used(folder: Path) -> tuple[int, int]:
    """The bytes and the number of the files below a folder."""
    size = count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_COUNTED]
        for name in names:
            count += 1
            try:
                size += os.lstat(f"{place}/{name}").st_size
            except FileNotFoundError:
                continue
    return size, count
