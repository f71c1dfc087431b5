"""The lines of a log in both directions, in linear time: of a long line only a part is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from trainer_runtime.core.protocol.text import last_part
from trainer_runtime.core.records import dataclass

_BLOCK_BYTES = 256 << 10
# Of a line that spans blocks: its beginning, or what a progress bar wrote last.
_LONGEST_READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LogLine:
    """`text` without its line feed; `end`: the offset behind that. `left_out`: bytes of the line
    that `text` lacks."""

    text: bytes
    end: int
    left_out: int = 0


def lines_from(file: BinaryIO, offset: int, *, with_torn_end: bool) -> Iterator[LogLine]:
    """The lines from `offset` on. `with_torn_end`: what follows the last line feed is one too."""
    begin = at = offset
    while block := _read(file, at, _BLOCK_BYTES):
        *whole, _ = block.split(b"\n")
        start = at
        for text in whole:
            end = start + len(text)
            yield LogLine(text, end + 1) if begin == start else _line(file, begin, end)
            begin = start = end + 1
        at += len(block)
    if with_torn_end and begin < at:
        line = _line(file, begin, at)
        yield LogLine(line.text, at, line.left_out)


def lines_before(file: BinaryIO, end: int) -> Iterator[LogLine]:
    """The lines before `end`, the last one first."""
    if end <= 0:
        return
    at = behind = end - 1 if _read(file, end - 1, 1) == b"\n" else end
    while at > 0:
        size = min(_BLOCK_BYTES, at)
        at -= size
        _, *rest = _read(file, at, size).split(b"\n")
        begin = at + size
        for text in reversed(rest):
            begin -= len(text)
            is_whole = behind == begin + len(text)
            yield LogLine(text, behind + 1) if is_whole else _line(file, begin, behind)
            begin -= 1
            behind = begin
    yield _line(file, 0, behind)


def end_of_lines(file: BinaryIO) -> int:
    """The offset behind the last line feed; 0 where there is none."""
    at = file.seek(0, 2)
    while at > 0:
        size = min(_BLOCK_BYTES, at)
        at -= size
        found = _read(file, at, size).rfind(b"\n")
        if found >= 0:
            return at + found + 1
    return 0


def _line(file: BinaryIO, begin: int, end: int) -> LogLine:
    size = end - begin
    if size <= _LONGEST_READ_BYTES:
        return LogLine(_read(file, begin, size), end + 1)
    tail = _read(file, end - _LONGEST_READ_BYTES, _LONGEST_READ_BYTES)
    part = last_part(tail)
    if len(part) < len(tail.rstrip()):
        return LogLine(part, end + 1)
    head = _read(file, begin, _LONGEST_READ_BYTES)
    return LogLine(head, end + 1, size - len(head))


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
