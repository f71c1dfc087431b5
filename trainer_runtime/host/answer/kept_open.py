"""Descriptors that stay open from one scan to the next, within what the process may have.

To ask an open file or folder what it is costs half of asking for what lies at its path.
"""

from __future__ import annotations

import os
import resource
import stat
from functools import lru_cache
from typing import ClassVar

from trainer_runtime.core.files.regular import READING

# Of the descriptors that a process may have; and at most.
_KEPT_SHARE, _MOST_KEPT = 3 / 4, 4096


class KeptOpen:
    """A descriptor that is kept, or none. `descriptor`: None where none is."""

    __slots__ = ("descriptor",)
    _count: ClassVar[int] = 0  # of the process

    def __init__(self) -> None:
        self.descriptor: int | None = None

    def keep(self, descriptor: int) -> None:
        """Keep it in the place of another one; where there are too many, it stays the caller's."""
        self.close()
        if KeptOpen._count < _most_kept():
            self.descriptor = descriptor
            KeptOpen._count += 1

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
            KeptOpen._count -= 1


class FollowedFolder:
    """A folder, and whether what lies in it may be other than before."""

    __slots__ = ("_changed", "_kept", "_path", "_seen")

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept = KeptOpen()
        self._seen: tuple[int, int] | None = None
        self._changed = True

    def has_changed(self, *, by_path: bool) -> bool:
        """Whether a file may have come, gone or been replaced since the last call, or since the one
        before: a clock that ticks some hundred times a second may show no difference.

        A folder that was put into its place shows `by_path` alone.
        """
        try:
            status = self._status(by_path)
        except OSError:
            self._kept.close()
            return True
        before, self._seen = self._seen, (status.st_ino, status.st_mtime_ns)
        changed, self._changed = self._changed, before != self._seen
        return changed or self._changed

    def close(self) -> None:
        self._kept.close()

    def _status(self, by_path: bool) -> os.stat_result:
        if self._kept.descriptor is not None and not by_path:
            return os.fstat(self._kept.descriptor)
        status = os.lstat(self._path)
        is_same = self._seen is not None and status.st_ino == self._seen[0]
        if (self._kept.descriptor is None or not is_same) and stat.S_ISDIR(status.st_mode):
            self._open()
        return status

    def _open(self) -> None:
        descriptor = os.open(self._path, READING | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._kept.keep(descriptor)
        if self._kept.descriptor is None:
            os.close(descriptor)


@lru_cache(maxsize=1)
def _most_kept() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST_KEPT
    return min(_MOST_KEPT, int(most * _KEPT_SHARE))
