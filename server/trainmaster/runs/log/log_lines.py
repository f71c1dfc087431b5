"""The lines of a log of any form, by bounded reading: of a long line only a part is kept, and one
that has no end within 16 MiB is cut there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from trainer_runtime.core.protocol.text import last_part
from trainmaster.metrics.log_file import read_block

LONGEST_LINE_BYTES = 16 << 20
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


def line_between(file: BinaryIO, begin: int, end: int) -> LogLine:
    """The line from `begin` to `end`, behind its line feed if it has one."""
    size = end - begin
    if size <= _LONGEST_READ_BYTES:
        return LogLine(read_block(file, begin, size).removesuffix(b"\n"), end)
    tail = read_block(file, end - _LONGEST_READ_BYTES, _LONGEST_READ_BYTES)
    size -= tail.endswith(b"\n")
    part = last_part(tail)
    if len(part) < len(tail.rstrip()):
        return LogLine(part, end)
    head = read_block(file, begin, _LONGEST_READ_BYTES)
    return LogLine(head, end, size - len(head))


def end_of_line(file: BinaryIO, begin: int, *, with_torn_end: bool) -> int | None:
    """The offset behind the line that begins there; None where it has not ended yet.

    `with_torn_end`: the end of the file ends it.
    """
    at = begin
    while at - begin < LONGEST_LINE_BYTES and (block := read_block(file, at, _BLOCK_BYTES)):
        place = block.find(b"\n")
        if place >= 0:
            return at + place + 1
        at += len(block)
    is_cut = at - begin >= LONGEST_LINE_BYTES
    return at if is_cut or (with_torn_end and at > begin) else None


def begin_of_line(file: BinaryIO, end: int) -> int:
    """Where the line begins that `end` is the end of, behind its line feed."""
    return _behind_line_feed(file, end - 1, max(0, end - LONGEST_LINE_BYTES))


def end_of_lines(file: BinaryIO) -> int:
    """The offset behind the last line feed; 0 where there is none. Where what follows it is too
    long for a line, the end of the file."""
    size = file.seek(0, 2)
    first = max(0, size - LONGEST_LINE_BYTES)
    end = _behind_line_feed(file, size, first)
    return size if first and end == first else end


def _behind_line_feed(file: BinaryIO, end: int, first: int) -> int:
    """The offset behind the last line feed between `first` and `end`; else `first`."""
    at = end
    while at > first:
        size = min(_BLOCK_BYTES, at - first)
        at -= size
        place = read_block(file, at, size).rfind(b"\n")
        if place >= 0:
            return at + place + 1
    return first
