"""Cuts a stream of bytes into blocks of whole lines, however the bytes arrive."""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.diagnosis.line_prefix import without_prefix

TAIL_BYTES = 1 << 15  # of the log's end
LONGEST_LINE = 16_384  # a longer one is read in pieces of this size
_MAX_PIECES = 4  # of a long line; further ones are skipped, except its last
_LINE_ENDS = (b"\n", b"\r")
_BLOCK_BYTES = 1 << 18  # fits the processor's cache
_CONTEXT_BYTES = 8_192  # searched for the step

ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])"
)


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, or a piece of a long one. `offset` is the log's byte where it begins, `before`
    the 8 KiB in front of it."""

    data: bytes
    offset: int
    before: bytes


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a block; `start` is its first byte within the block."""

    block: Block
    start: int
    raw: bytes

    @property
    def offset(self) -> int:
        """The byte of the log where the line begins."""
        return self.block.offset + self.start

    @property
    def text(self) -> str:
        """The line without terminal escapes."""
        return ANSI.sub(b"", self.raw).decode("utf-8", errors="replace")

    @property
    def message(self) -> str:
        """The text without what launchers and loggers write before it."""
        return without_prefix(self.text)

    @property
    def context(self) -> bytes:
        """The 8 KiB of the log that end with this line."""
        end = self.start + len(self.raw)
        context = self.block.data[max(0, end - _CONTEXT_BYTES) : end]
        missing = _CONTEXT_BYTES - len(context)
        return self.block.before[-missing:] + context if missing > 0 else context


class BlockReader:
    """Feed it bytes in any pieces; it yields blocks and keeps the end of the log in bounded memory.

    `offset` is the log's byte where the stream begins; later, where the next block does.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._rest = b""
        self._before = b""
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._pieces = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`. What follows `offset` has to be fed again."""
        return {
            "offset": self.offset,
            "before": base64.b64encode(self._before).decode(),
            "tail": base64.b64encode(self.tail()).decode(),
            "pieces": self._pieces,
        }

    @classmethod
    def from_dict(cls, memory: Mapping[str, Any]) -> BlockReader:
        reader = cls(memory["offset"])
        reader._before = base64.b64decode(memory["before"])
        reader._keep_tail(base64.b64decode(memory["tail"]))
        reader._pieces = memory["pieces"]
        return reader

    def feed(self, data: bytes) -> Iterator[Block]:
        """The blocks that `data` completes."""
        data = self._rest + data if self._rest else data
        start = 0
        while len(data) - start > LONGEST_LINE:
            stop = _block_end(data, start, min(len(data), start + _BLOCK_BYTES))
            yield from self._block(data[start:stop])
            start = stop
        end = max(data.rfind(b"\n", start), data.rfind(b"\r", start)) + 1
        if end > start:
            yield from self._block(data[start:end])
            start = end
        self._rest = data[start:]

    def finish(self) -> Iterator[Block]:
        """The last line, if it has no line end."""
        if self._rest:
            yield from self._block(self._rest + b"\n")
            self._rest = b""

    def tail(self) -> bytes:
        """The last 32 KiB of the blocks."""
        return b"".join(self._tail)[-TAIL_BYTES:]

    def _block(self, data: bytes) -> Iterator[Block]:
        self._pieces = 0 if data[-1:] in _LINE_ENDS else self._pieces + 1
        if self._pieces <= _MAX_PIECES:
            yield Block(data, self.offset, self._before)
        self.offset += len(data)
        self._before = (self._before + data[-_CONTEXT_BYTES:])[-_CONTEXT_BYTES:]
        self._keep_tail(data[-TAIL_BYTES:])

    def _keep_tail(self, end: bytes) -> None:
        self._tail.append(end)
        self._tail_bytes += len(end)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())


def _block_end(data: bytes, start: int, stop: int) -> int:
    """Where the block that begins at `start` ends: after the last line end before `stop`.

    A line longer than `LONGEST_LINE` is cut into pieces of that size, counted from its start, so
    that the pieces don't depend on how the bytes arrived.
    """
    end = max(data.rfind(b"\n", start, stop), data.rfind(b"\r", start, stop)) + 1
    if end <= start:
        return start + LONGEST_LINE
    long = _first_long_line(data, start, end)
    if long is None:
        return end
    return long if long > start else start + LONGEST_LINE


def _first_long_line(data: bytes, start: int, end: int) -> int | None:
    """Where the first line longer than `LONGEST_LINE` begins in data[start:end], if any."""
    position = start
    while end - position > LONGEST_LINE:
        stop = position + LONGEST_LINE + 1
        line_end = max(data.rfind(b"\n", position, stop), data.rfind(b"\r", position, stop))
        if line_end < 0:
            return position
        position = line_end + 1
    return None
