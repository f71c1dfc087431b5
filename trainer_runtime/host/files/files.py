"""JSON files that are replaced as a whole, and files of lines that are only appended to."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import MAX_RECORD_BYTES, DecodingError, Fields, decode_value
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.files.regular import open_regular, read_regular
from trainer_runtime.core.protocol.lines import complete_lines, encode
from trainer_runtime.host.files.compacted import read_at


def write_json(path: Path, value: Mapping[str, object]) -> None:
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`; None if the file is missing, not regular or not valid.

    A file written by `write_json` is never torn, so an unreadable one was not written by us.
    """
    try:
        value = decode_value(read_regular(path, MAX_RECORD_BYTES), path.name)
    except (OSError, DecodingError):
        return None
    return value if isinstance(value, dict) else None


def read_fields(path: Path) -> Fields | None:
    """The same by its types."""
    value = read_json(path)
    return None if value is None else Fields(value, path.name)


# A torn line may lack its end alone: then it would count after all, once another line follows.
_END_OF_TORN_LINE = b"#\n"


class AppendedLog:
    """The one writer of a JSON-lines file; ends a torn last line before it adds its own."""

    def __init__(self, path: Path, next_seq: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._next_seq = next_seq
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"

    def append(self, time_s: float, kind: str, fields: Mapping[str, object]) -> bytes:
        """Write one event; returns its line.

        Raises:
            OSError: the disk took none or only part of it; the next call starts a new line.
        """
        line = encode(self._next_seq, time_s, kind, fields)
        self.append_line(line)
        self._next_seq += 1
        return line

    def append_line(self, line: bytes) -> None:
        """Write one line of another kind.

        Raises:
            OSError: as `append`.
        """
        data = _END_OF_TORN_LINE + line if self._torn else line
        written = os.write(self._descriptor, data)
        if written < len(data):
            self._torn = True
            raise OSError(errno.ENOSPC, "only part of a line could be written")
        self._torn = False

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


_PIECE_BYTES = 1 << 20


class LineReader:
    """Reads what was appended to a file since the last time, whole lines only; also lines of
    regions that were compressed.

    A line that is longer than what `decode` accepts may be left out: its memory stays bounded.
    """

    def __init__(self, path: Path, begin: int = 0, end: int | None = None) -> None:
        """`begin`, `end`: the bytes of the file that are read; `end` None: as far as it goes."""
        self._path = path
        self._offset = begin
        self._end = sys.maxsize if end is None else end
        self._within_long_line = False

    @property
    def offset(self) -> int:
        """How many bytes were read: the lines up to there were given."""
        return self._offset

    def read(self) -> Iterator[bytes]:
        """The new lines, without their ends; holds a piece of the file at a time."""
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            return
        with file:
            rest = b""
            while piece := self._piece(file.fileno(), self._offset + len(rest)):
                data = rest + piece
                if self._within_long_line:
                    left_out = data.find(b"\n") + 1 or len(data)
                    self._within_long_line = data[left_out - 1 : left_out] != b"\n"
                    data = data[left_out:]
                    self._offset += left_out
                lines, used = complete_lines(data)
                rest = data[used:]
                self._offset += used
                if len(rest) > MAX_RECORD_BYTES:
                    self._offset += len(rest)
                    self._within_long_line, rest = True, b""
                yield from lines

    def _piece(self, descriptor: int, begin: int) -> bytes:
        return read_at(descriptor, str(self._path), begin, min(_PIECE_BYTES, self._end - begin))
