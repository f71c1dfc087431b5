"""Copies a foreign process's log into a file of ours that is only ever appended to.

The copy's content decides what is copied next: beside it is a journal of the files that it
was taken from, a line for each before its first byte is copied, so that a copy killed at any
moment resumes with the same bytes, each once. What a sparse file never wrote is left out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.protected import open_unprotected
from trainer_runtime.core.files.sparse import next_text
from trainer_runtime.core.policy.write_bounds import MOST_REPLACED, Refusal
from trainer_runtime.core.protocol.followed_files import TAIL_BYTES
from trainer_runtime.core.protocol.lines import Event, ProtocolError, decode
from trainer_runtime.host.files.files import AppendedLog, LineReader
from trainer_runtime.host.files.layout import RunFolder

_CHUNK_BYTES = 1 << 20
_MOST_NAMES = 10_000  # of a folder, when searching for a moved log
_LEAST_HOLE_BYTES = 1 << 20  # shorter ones are copied as the zeros that they read as
_NOTE_BYTES = 1 << 10  # what recording a further file writes at most, in all places


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that the copy was taken from: its bytes from `begin` on are in the copy from `at` on.

    `part`: index of the file in the wanted ones; `inode` and `device` distinguish its successors.
    """

    part: int
    device: int
    inode: int
    begin: int
    at: int


class LogCopy:
    """Appends what is new in `parts` to `copy`: all but the last are copied once, to their end.

    `begin`: where the last part's first file is taken up. `warn` gets a sentence whenever a file
    was found cut off or replaced; the copy then continues with what is there now, from its start.
    `room` says of so many bytes whether they may be written: while it refuses, `refusal` says why,
    nothing is copied, and `position` alone follows the file. Copying then continues from there.
    After `most_replaced` files, or places behind holes, no further one is taken up.
    """

    def __init__(
        self,
        copy: Path,
        journal: Path,
        parts: Sequence[Path],
        begin: int,
        clock: Callable[[], float],
        warn: Callable[[str], None],
        *,
        room: Callable[[int], Refusal | None] = lambda _: None,
        most_replaced: int = MOST_REPLACED,
    ) -> None:
        self._parts, self._begin, self._clock, self._warn = parts, begin, clock, warn
        self._room, self._most_replaced = room, most_replaced
        self.refusal: Refusal | None = None
        self._origin: Origin | None = None
        self._origins = next_seq = 0
        for line in LineReader(journal).read():
            try:
                event = decode(line)
            except ProtocolError:
                continue  # torn by a kill
            next_seq = event.seq + 1
            self._origin = _origin(event)
            self._origins += 1
        self._journal = AppendedLog(journal, next_seq)
        self._root = RunFolder(copy.parents[2]).host_root
        self._copy = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._source: int | None = None

    def advance(self) -> int:
        """Copy at most 1 MiB of what is new; the bytes copied.

        Raises:
            OSError: the copy can't be written; nothing is lost by trying again.
        """
        self.refusal = None
        return self._advance()

    def _advance(self) -> int:
        size = os.fstat(self._copy).st_size
        if self._origin is None:
            return 0 if not self._take_up(0, self._begin_of(0), size) else self._advance()
        if size < self._origin.at:
            self._append(b"\n")  # what a log that was cut off has left begun
            return 1
        if self._source is None:
            self._source = self._open(self._origin)
        copied = 0 if self._source is None else self._copy_from(self._source, size)
        if copied or self.refusal is not None or not self._continue(size):
            return copied
        return self._advance()

    @property
    def position(self) -> tuple[int, int]:
        """Up to where the present file was read, and its length; zeros before there is one."""
        if self._source is None or self._origin is None:
            return 0, 0
        copied = os.fstat(self._copy).st_size - self._origin.at
        return self._origin.begin + max(0, copied), os.fstat(self._source).st_size

    def close(self) -> None:
        self._let_go()
        os.close(self._copy)
        self._journal.close()

    def _begin_of(self, part: int) -> int:
        return self._begin if part == len(self._parts) - 1 else 0

    def _copy_from(self, source: int, size: int) -> int:
        """What follows in the file; nothing where it is not any more what was copied from it."""
        origin = self._current()
        offset = origin.begin + size - origin.at
        if os.fstat(source).st_size <= offset or not self._matches(source, offset, size):
            return 0
        text = next_text(source, offset, _CHUNK_BYTES)
        if text is None:
            return 0  # nothing was written there yet
        begin, data = text
        if begin - offset >= _LEAST_HOLE_BYTES or not data:
            return self._skip_to(source, begin, size)
        data = bytes(begin - offset) + data
        if not self._may_write(len(data)):
            return 0
        self._append(data)
        return len(data)

    def _may_write(self, more_bytes: int) -> bool:
        self.refusal = self._room(more_bytes)
        return self.refusal is None

    def _skip_to(self, source: int, begin: int, size: int) -> int:
        """Continue behind a hole of the file; 0 where that may not be recorded."""
        if not self._may_record():
            return 0
        self._record(source, self._current().part, begin, size, apart=True)
        return 1

    def _matches(self, source: int, offset: int, size: int) -> bool:
        """Whether the file still has, before `offset`, what the copy ends in."""
        length = min(TAIL_BYTES, size - self._current().at)
        return os.pread(source, length, offset - length) == os.pread(
            self._copy, length, size - length
        )

    def _continue(self, size: int) -> bool:
        """Take up what follows the present file, at its end; True where there is anything."""
        origin = self._current()
        if origin.part < len(self._parts) - 1:
            return self._take_up(origin.part + 1, self._begin_of(origin.part + 1), size)
        offset = origin.begin + size - origin.at
        if self._source is not None and self._is_in_place(origin):
            there = os.fstat(self._source).st_size
            if there == offset or (there > offset and self._matches(self._source, offset, size)):
                return False
            return self._replace(origin, size, "was cut off" if there < offset else "was rewritten")
        path = self._parts[origin.part]
        if not path.exists() or path.stat().st_size == 0:
            return False  # moved away: its successor has not begun
        return self._replace(origin, size, "was replaced")

    def _replace(self, origin: Origin, size: int, what: str) -> bool:
        if not self._take_up(origin.part, 0, size, apart=True):
            return False
        read = origin.begin + size - origin.at
        self._warn(f"The log {what} after its first {read} bytes; what stands there now follows.")
        return True

    def _take_up(self, part: int, begin: int, size: int, *, apart: bool = False) -> bool:
        """Record the file at a part's path as the copy's next; False if there is none."""
        if not self._may_record():
            return False
        try:
            source = self._opened(self._parts[part])
        except OSError:
            return False
        begin = begin if begin <= os.fstat(source).st_size else 0
        self._record(source, part, begin, size, apart=apart)
        self._let_go()
        self._source = source
        return True

    def _may_record(self) -> bool:
        """Whether one more file, or place in a file, may be recorded."""
        if self._origins > self._most_replaced:
            self.refusal = Refusal("replaced", self._most_replaced)
            return False
        return self._may_write(_NOTE_BYTES)

    def _record(self, source: int, part: int, begin: int, size: int, *, apart: bool) -> None:
        """Write down that an open file is the copy's next, from `begin` on."""
        status = os.fstat(source)
        torn = apart and size > 0 and os.pread(self._copy, 1, size - 1) != b"\n"
        fields = {
            "part": part,
            "device": status.st_dev,
            "inode": status.st_ino,
            "begin": begin,
            "at": size + torn,
        }
        self._origin = _origin(decode(self._journal.append(self._clock(), "source", fields)))
        self._journal.sync()
        self._origins += 1

    def _open(self, origin: Origin) -> int | None:
        """The file that was being copied, also where it was moved within its folder."""
        path = self._parts[origin.part]
        for candidate in (path, *_moved(path, origin)):
            try:
                source = self._opened(candidate)
            except OSError:
                continue
            status = os.fstat(source)
            if (status.st_dev, status.st_ino) == (origin.device, origin.inode):
                return source
            os.close(source)
        return None

    def _opened(self, path: Path) -> int:
        """Its owner may have put a link to secrets into the place of the log, or a pipe."""
        source = open_unprotected(path, os.O_NONBLOCK, homes=[self._root])
        if not stat.S_ISREG(os.fstat(source).st_mode):
            os.close(source)
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return source

    def _is_in_place(self, origin: Origin) -> bool:
        try:
            status = os.stat(self._parts[origin.part])
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (origin.device, origin.inode)

    def _append(self, data: bytes) -> None:
        written = os.write(self._copy, data)
        if written < len(data):
            os.write(self._copy, data[written:])  # raises the reason, or takes the rest

    def _let_go(self) -> None:
        if self._source is not None:
            os.close(self._source)
            self._source = None

    def _current(self) -> Origin:
        if self._origin is None:
            raise ValueError("nothing was taken up yet")
        return self._origin


def _origin(event: Event) -> Origin:
    fields = event.fields
    return Origin(
        part=fields.integer("part"),
        device=fields.integer("device"),
        inode=fields.integer("inode"),
        begin=fields.integer("begin"),
        at=fields.integer("at"),
    )


def _moved(path: Path, origin: Origin) -> list[Path]:
    try:
        with os.scandir(path.parent) as entries:
            listed = [entry for _, entry in zip(range(_MOST_NAMES), entries, strict=False)]
    except OSError:
        return []
    return [Path(entry.path) for entry in listed if entry.inode() == origin.inode]
