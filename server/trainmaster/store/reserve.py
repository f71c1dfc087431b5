"""Room on a full disk: files that are given up by what ends things, and a margin for the rest.

`tick`, `stop` and `release` have to write records before they act. Where the disk is full, or takes
no more files, they remove the reserve first: some space, and some inodes. A home has a small one
from its first opening; a tick makes it whole, and makes it again. The mirror, which grows with what
hosts send, leaves a margin that is larger than the reserve, so it never fills what was given up.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from trainmaster.home.paths import Home
from trainmaster.store.disk_space import inodes_left, takes_more

_RESERVE_BYTES = 32 << 20
# Enough to record a request and to deliver it: pages of the logs of both databases.
_FIRST_BYTES = 4 << 20
_MARGIN_BYTES = 96 << 20
# What a stop creates: logs and indexes of both databases, locks, the request, its temporary file.
_RESERVED_FILES = 16
# On a small disk at most these shares of it.
_RESERVE_SHARE, _MARGIN_SHARE = 1 / 64, 1 / 20
# With less than this share of the reserve free, nothing can be recorded safely.
_FULL_SHARE = 1 / 2
_MEASURED_EVERY_S = 0.25


def give_up_reserve(home: Home) -> None:
    """Remove the reserve if the disk is full, or takes no more files."""
    with suppress(OSError):
        least_bytes = _FULL_SHARE * _size(home.root, _RESERVE_BYTES, _RESERVE_SHARE)
        if _free_bytes(home.root) < least_bytes or not takes_more(home.root):  # by its quota
            home.reserve.unlink(missing_ok=True)
    with suppress(OSError):
        inodes = inodes_left(home.root)
        if inodes is not None and inodes < _RESERVED_FILES:
            shutil.rmtree(home.reserved_files)


def begin_reserve(home: Home) -> None:
    """Make a first, small reserve where there is none and the disk has room for it."""
    if not home.reserve.exists():
        with suppress(OSError):
            wanted = _size(home.root, _FIRST_BYTES, _RESERVE_SHARE)
            if _free_bytes(home.root) >= 2 * wanted:
                _allocate(home.reserve, wanted)
    if not home.reserved_files.exists():
        with suppress(OSError):
            _reserve_files(home)


def keep_reserve(home: Home) -> None:
    """Make the whole reserve where the disk has room for it and the margin."""
    with suppress(OSError):
        wanted = _size(home.root, _RESERVE_BYTES, _RESERVE_SHARE)
        has = home.reserve.stat().st_size if home.reserve.exists() else 0
        if has < wanted and _free_bytes(home.root) >= wanted - has + margin_bytes(home.root):
            _allocate(home.reserve, wanted)
        if not home.reserved_files.exists():
            _reserve_files(home)


def _allocate(path: Path, size_bytes: int) -> None:
    """Give a file that size on the disk, where twice of it fits: by a quota, whose rest is not
    reported, what was given up just now would be taken again.

    Raises:
        OSError: it does not; the file is as before.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        before_bytes = os.fstat(descriptor).st_size
        try:
            os.posix_fallocate(descriptor, 0, max(1, 2 * size_bytes))
        except OSError:
            os.ftruncate(descriptor, before_bytes)
            if not before_bytes:
                path.unlink()
            raise
        os.ftruncate(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _reserve_files(home: Home) -> None:
    inodes = inodes_left(home.root)
    if inodes is None or inodes < 4 * _RESERVED_FILES:
        return
    home.reserved_files.mkdir(mode=0o700)
    for number in range(_RESERVED_FILES):
        (home.reserved_files / str(number)).touch(mode=0o600)


def margin_bytes(folder: Path) -> int:
    """The free space that growing files leave on the disk of `folder`."""
    return _size(folder, _MARGIN_BYTES, _MARGIN_SHARE)


def leaves_margin(place: Path | int, more_bytes: int) -> bool:
    """Whether the disk of a folder, or of an open file, keeps its margin after `more_bytes` were
    written."""
    return _beyond_margin(place) >= more_bytes


class Room:
    """The space that growing files may take on the disk of `folder`, as `leaves_margin` says.

    Measured some times a second and not for every line; what is taken meanwhile is subtracted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free_bytes = 0
        self._measured_t = -math.inf

    def take(self, more_bytes: int) -> bool:
        """Count these bytes as written; False, and nothing counted, where they don't fit.

        Raises:
            OSError: the disk can't be asked.
        """
        now = time.monotonic()
        if now - self._measured_t > _MEASURED_EVERY_S or more_bytes > self._free_bytes:
            self._free_bytes = self._measured()
            self._measured_t = now
        if more_bytes > self._free_bytes:
            return False
        self._free_bytes -= more_bytes
        return True

    def _measured(self) -> int:
        try:
            return _beyond_margin(self._folder)
        except FileNotFoundError:
            os.makedirs(self._folder, exist_ok=True)
            return _beyond_margin(self._folder)


def _beyond_margin(place: Path | int) -> int:
    """The free bytes above the margin; below zero where the margin is used."""
    status = os.statvfs(place)
    margin = min(_MARGIN_BYTES, int(status.f_blocks * status.f_frsize * _MARGIN_SHARE))
    return status.f_bavail * status.f_frsize - margin


def _size(folder: Path, most: int, share: float) -> int:
    file_system = os.statvfs(folder)
    return min(most, int(file_system.f_blocks * file_system.f_frsize * share))


def _free_bytes(folder: Path) -> int:
    file_system = os.statvfs(folder)
    return file_system.f_bavail * file_system.f_frsize
