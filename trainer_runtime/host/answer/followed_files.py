"""Reads a run's files for the follower: from where the copy ends, or as a whole.

Symbolic links are never followed: what is read lies in the run's folder.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from typing import Any, Protocol

from trainer_runtime.core.protocol.followed_files import LARGEST_WHOLE_BYTES, TAIL_BYTES
from trainer_runtime.host.files.compacted import read_at

_FLUSH_BYTES = 64 << 10
_MOST_FRAMES = 256
_encode = json.JSONEncoder(separators=(",", ":")).encode
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Frames(Protocol):
    """Who takes what was read. `sent_bytes`: how much of the files that was so far."""

    @property
    def sent_bytes(self) -> int: ...

    def frame(self, header: dict[str, Any], data: bytes = b"") -> None:
        """Take one file's next bytes, or a whole file; `header` as `box.answer.follow` describes
        it."""


class Outbox:
    """Frames on their way out, many in a packet: their headers on one line of JSON, then as many
    raw bytes of each as its `n` says."""

    def __init__(self, descriptor: int, taken: Callable[[], object]) -> None:
        self._descriptor = descriptor
        self._taken = taken  # called whenever the other side has taken something
        self._headers: list[dict[str, Any]] = []
        self._waiting = bytearray()
        self.sent_bytes = 0

    def frame(self, header: dict[str, Any], data: bytes = b"") -> None:
        header["n"] = len(data)
        self._headers.append(header)
        self._waiting += data
        self.sent_bytes += len(data)
        if len(self._waiting) > _FLUSH_BYTES or len(self._headers) >= _MOST_FRAMES:
            self._write(self._packet())

    def end(self, fields: dict[str, Any]) -> None:
        """What is left, and the line that ends an answer."""
        self._write(self._packet() + _line(fields))

    def _packet(self) -> bytes:
        if not self._headers:
            return b""
        packet = _line({"frames": self._headers}) + self._waiting
        self._headers.clear()
        self._waiting.clear()
        return packet

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += os.write(self._descriptor, view[done : done + _FLUSH_BYTES])
            self._taken()


class AppendedFile:
    """A file that grows: each byte is sent once, under the generation of the file it belongs to.

    A new generation begins where the file is shorter than what was sent of it, is another file
    (inode), or has other bytes before the cursor. Unsent bytes of the old one are searched
    beside it, where a rotation may have moved or copied it, and are sent first.

    `have`: the copy's length, the inode of its original where that is known, and the last bytes of
    the copy as far as they are the original's own.
    """

    __slots__ = (
        "_cursor",
        "_end",
        "_inode",
        "_is_reset",
        "_path",
        "_run_id",
        "_seen",
        "_sent_inode",
        "_source",
        "_tail",
        "behind",
        "name",
    )

    def __init__(
        self, run_id: str, path: str, name: str, have: tuple[int, int | None, bytes]
    ) -> None:
        self.name = name
        self._run_id = run_id
        self._path = self._source = path
        self._cursor, self._inode, self._tail = have
        self._sent_inode = self._inode
        self._end = self._cursor
        self._seen: tuple[int, int, int] | None = None
        self._is_reset = False
        self.behind = False

    @property
    def exists(self) -> bool:
        return self._seen is not None

    def refresh(self) -> bool:
        """See how far the file goes now; True where it is `behind`: something is to be sent."""
        return self._source != self._path or self._check_path()

    def send(self, outbox: Frames, limit: int) -> None:
        """Send at most `limit` bytes (at least one) of what was found."""
        data = self._read(limit)
        if data is None:
            if not self._reset():
                self.refresh()
            data = self._read(limit) or b""
        self._send(outbox, data)
        self._cursor += len(data)
        if not data:
            self._end = self._cursor  # truncated meanwhile, or unreadable: the next refresh shows
        if self._source != self._path and self._end <= self._cursor:
            self._forget()
            self.refresh()
        self.behind = self._is_reset or self._end > self._cursor

    def _check_path(self) -> bool:
        """See what lies at the path now, and how long it is."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._seen:
            return self.behind
        if not stat.S_ISREG(status.st_mode):
            return False
        self.behind = True
        replaced = self._inode is not None and self._inode != status.st_ino
        if (replaced or status.st_size < self._cursor) and self._reset():
            return True  # the old one's rest first
        self._seen, self._inode, self._end = seen, status.st_ino, status.st_size
        return True

    def _send(self, outbox: Frames, data: bytes) -> None:
        header: dict[str, Any] = {"run": self._run_id, "file": self.name, "at": self._cursor}
        header_bytes = len(header)
        if self._is_reset:
            header["reset"] = True
        if self._sent_inode != self._inode and self._source == self._path:
            header["inode"] = self._sent_inode = self._inode
        if data or len(header) > header_bytes:
            outbox.frame(header, data)
            self._is_reset = False

    def _read(self, limit: int) -> bytes | None:
        """What follows the cursor; None where the file no longer has what was sent before it."""
        before = min(self._cursor, TAIL_BYTES)
        wanted = max(0, min(limit, self._end - self._cursor))
        try:
            descriptor = self._opened()
            try:
                data = read_at(descriptor, self._source, self._cursor - before, before + wanted)
            finally:
                os.close(descriptor)
        except OSError:
            self._seen = None
            return b""
        if len(data) < before or not data[:before].endswith(self._tail):
            return None
        self._tail = data[-TAIL_BYTES:]
        return data[before:]

    def _opened(self) -> int:
        """The file, open.

        Raises:
            OSError: it is gone, or was replaced since the last refresh.
        """
        descriptor = os.open(self._source, _FLAGS)
        if self._source == self._path and os.fstat(descriptor).st_ino != self._inode:
            os.close(descriptor)
            raise FileNotFoundError(self._path)
        return descriptor

    def _reset(self) -> bool:
        """Begin the next generation; True if the old one's rest is still to be read before."""
        if self._source == self._path:
            moved = self._moved_away()
            if moved is not None:
                self._source, self._end = moved
                return True
        self._forget()
        return False

    def _forget(self) -> None:
        self._source = self._path
        self._cursor = self._end = 0
        self._tail = b""
        self._inode = self._sent_inode = None
        self._seen = None
        self._is_reset = True

    def _moved_away(self) -> tuple[str, int] | None:
        """Where a rotation has put the bytes beyond the cursor, and how many there are in all."""
        folder, own_name = os.path.split(self._path)
        candidates = []
        try:
            for entry in os.scandir(folder):
                same = entry.inode() == self._inode
                copied = entry.name.startswith(own_name) and self._tail != b""
                if entry.name == own_name or not (same or copied):
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and self._continues(entry.path, status.st_size):
                    candidates.append((same, status.st_mtime_ns, entry.path, status.st_size))
        except OSError:
            return None
        return max(candidates)[2:] if candidates else None

    def _continues(self, path: str, size: int) -> bool:
        """Whether the file holds what was sent last, and more."""
        if size <= self._cursor:
            return False
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            return False
        try:
            begin = self._cursor - len(self._tail)
            return os.pread(descriptor, len(self._tail), begin) == self._tail
        finally:
            os.close(descriptor)


class ReplacedFile:
    """A file that its writer replaces: sent as a whole where it changed.

    `have`: size and modification time (ns) of the original that the copy was made of.
    """

    __slots__ = ("_path", "_run_id", "_seen", "name")

    def __init__(self, run_id: str, path: str, name: str, have: tuple[int, int] | None) -> None:
        self.name = name
        self._run_id = run_id
        self._path = path
        self._seen = have

    def send_changed(self, outbox: Frames) -> None:
        try:
            status = os.lstat(self._path)
            seen = (status.st_size, status.st_mtime_ns)
            if seen == self._seen or not stat.S_ISREG(status.st_mode):
                return
            descriptor = os.open(self._path, _FLAGS)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            data = read_at(descriptor, self._path, 0, LARGEST_WHOLE_BYTES + 1)
        except OSError:
            return
        finally:
            os.close(descriptor)
        self._seen = (status.st_size, status.st_mtime_ns)
        if len(data) <= LARGEST_WHOLE_BYTES:
            header = {"run": self._run_id, "file": self.name, "mtime_ns": status.st_mtime_ns}
            outbox.frame(header, data)


def _line(fields: dict[str, Any]) -> bytes:
    return _encode(fields).encode() + b"\n"
