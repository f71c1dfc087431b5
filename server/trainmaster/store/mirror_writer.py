"""Writes a placement's mirror: masked, within its quota, and leaving the disk a margin."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from trainer_runtime.core.files.shared_quota import SharedQuota
from trainer_runtime.core.protocol.figures import size_text
from trainer_runtime.core.protocol.followed_files import (
    APPENDED_IN_ATTEMPT,
    APPENDED_IN_RUN,
    REPLACED_IN_ATTEMPT,
    REPLACED_IN_RUN,
    TAIL_BYTES,
)
from trainmaster.store.masking import Mask
from trainmaster.store.mirror import OpenFiles, PlacementMirror
from trainmaster.store.quota import ALWAYS_ALLOWED_BYTES, MOST_FILES, used
from trainmaster.store.refusals import MIRROR_QUOTA, UnusableDataError
from trainmaster.store.reserve import Room

UNLIMITED = 1 << 62
_FOLLOWING = "following.json"
_MASKED = b"*"


class MirrorWriter:
    """Writes masked bytes into a placement's mirror. The caller holds the host's follower lock.

    `mask` returns the mask of the run's current secrets, None where it has none. Names are those of
    the run's folder; the caller has validated them. Nothing is written beyond `limit_bytes` of the
    whole mirror, nor beyond the `total` of all mirrors and the `room` on their disk. Files that
    grow stay open in `files`, where it is given. `has_to_save`: which originals were copied is not
    written yet.
    """

    def __init__(
        self,
        mirror: PlacementMirror,
        mask: Callable[[], Mask | None],
        limit_bytes: int = UNLIMITED,
        room: Room | None = None,
        total: SharedQuota | None = None,
        *,
        files: OpenFiles | None = None,
    ) -> None:
        self.mirror = mirror
        self._root = str(mirror.root)
        self._files = files
        self._mask = mask
        self._room = room or Room(mirror.root)
        self._total = total
        self._limit_bytes = limit_bytes
        self._more_bytes = self._more_files = 0
        self._sizes: dict[str, int] = {}
        self.has_to_save = False

    @cached_property
    def _before(self) -> tuple[int, int]:
        """Bytes and files of the mirror before the first write: most writers write nothing."""
        return used(self.mirror.root)

    @cached_property
    def _inodes(self) -> dict[str, int]:
        return _read_inodes(self.mirror)

    def size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = self.mirror.size(name)
        return self._sizes[name]

    def tail(self, name: str) -> bytes:
        """The last bytes of the copy that are unmasked, so equal to the original's."""
        size = self.size(name)
        begin = max(0, size - TAIL_BYTES)
        return self.mirror.read(name, begin, size - begin).rpartition(_MASKED)[2]

    def cursors(self) -> dict[str, list[Any]]:
        """What is mirrored of each file, in the form that `trainer_runtime follow` expects."""
        cursors: dict[str, list[Any]] = {}
        for name in self._names(APPENDED_IN_RUN, APPENDED_IN_ATTEMPT):
            if size := self.size(name):
                tail = self.tail(name).decode("latin-1")
                cursors[name] = [size, self._inodes.get(name), tail]
            elif name in self._inodes:
                cursors[name] = [0, self._inodes[name], ""]
        for name in self._names(REPLACED_IN_RUN, REPLACED_IN_ATTEMPT):
            try:
                status = os.stat(f"{self._root}/{name}")
            except FileNotFoundError:
                continue
            cursors[name] = [status.st_size, status.st_mtime_ns]
        return cursors

    def append(self, name: str, data: bytes, *, final: bool) -> int:
        """Append the next bytes of the original; returns how many of them were written.

        The rest may be the beginning of a secret: the caller passes it again together with the
        bytes after it. Nothing is held back where `data` is `final`.

        Raises:
            OSError: nothing was written.
        """
        mask = self._mask()
        masked = data if mask is None else mask.apply(data, final=final)
        if masked:
            self._refuse_beyond_room(len(masked))
            before = self.size(name)
            if self._files is None:
                self.mirror.append(name, masked)
            else:
                self._files.append(f"{self._root}/{name}", masked)
            self._sizes[name] = before + len(masked)
        return len(masked)

    def replace(self, name: str, data: bytes, mtime_ns: int | None = None) -> None:
        mask = self._mask()
        masked = data if mask is None else mask.apply(data, final=True)
        self._refuse_beyond_room(len(masked), grows=False)
        self.mirror.replace(name, masked, mtime_ns)
        self._sizes[name] = len(masked)

    def rotate(self, name: str, inode: int | None) -> str | None:
        """Rename the copy of a file whose original was replaced, and begin an empty copy.

        Returns the new name of the old copy, None where there was none. Safe to repeat after a
        kill: the copy is empty then.
        """
        rotated = None
        if self.mirror.size(name) > 0:
            *earlier, _ = self.mirror.generations(name)
            self._more_files += "_before" in vars(self)  # else it is counted with the rest
            number = 1 + (int(earlier[-1].rpartition(".")[2]) if earlier else 0)
            rotated = f"{name}.{number}"
            self.close()
            os.rename(self.mirror.path(name), self.mirror.path(rotated))
            self.mirror.append(name, b"")
        self._sizes[name] = 0
        self.set_inode(name, inode)
        self.save()  # before bytes of the new file, which would be rotated once more
        return rotated

    def set_inode(self, name: str, inode: int | None) -> None:
        """Remember which file is mirrored, so that a replacement is recognised."""
        if inode is None:
            self._inodes.pop(name, None)
        else:
            self._inodes[name] = inode
        self.has_to_save = True

    def close(self) -> None:
        """Close the files that were kept open."""
        if self._files is not None:
            self._files.close(f"{self._root}/")

    def save(self) -> None:
        """Write the inodes. Not fsynced: without them there are fewer checks."""
        if self.has_to_save:
            text = json.dumps({"inodes": self._inodes}, separators=(",", ":"))
            self.mirror.replace(_FOLLOWING, text.encode())
            self.has_to_save = False

    def _refuse_beyond_room(self, more_bytes: int, *, grows: bool = True) -> None:
        """Raises:
        UnusableDataError: the quota of the run, or that of all runs, is used up.
        OSError: the disk has only its margin left; it may have more later.
        """
        before_bytes, before_files = self._before
        after_bytes = before_bytes + self._more_bytes + more_bytes
        if after_bytes > self._limit_bytes or before_files + self._more_files > MOST_FILES:
            limit = f"{size_text(self._limit_bytes)}, {MOST_FILES} files"
            raise UnusableDataError(f"its mirror has reached its quota ({limit})", MIRROR_QUOTA)
        counted = self._total if grows and after_bytes > ALWAYS_ALLOWED_BYTES else None
        if counted is not None and not counted.take(more_bytes):
            reason = "the mirrors of all runs have reached their quota (mirror.total_gib)"
            raise UnusableDataError(reason, MIRROR_QUOTA)
        if not self._room.take(more_bytes):
            raise OSError(errno.ENOSPC, "the disk has only its margin left")
        self._more_bytes += more_bytes if grows else 0

    def _names(self, in_run: tuple[str, ...], in_attempt: tuple[str, ...]) -> Iterator[str]:
        yield from in_run
        for number in self.mirror.attempts():
            for name in in_attempt:
                yield f"attempts/{number}/{name}"


def _read_inodes(mirror: PlacementMirror) -> dict[str, int]:
    try:
        inodes: dict[str, int] = json.loads(mirror.read(_FOLLOWING, 0, 1 << 24) or b"{}")["inodes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return inodes
