"""Searches the lines of a log for an expression, in time proportional to the file's size.

An expression of plain words is found in the bytes of whole blocks; only lines that have one, or in
which something invisible may stand between its letters, are inspected as they would be shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import regex

from trainer_runtime.core.protocol.text import LONGEST_LINE, shown
from trainmaster.calls.work import current_work
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import read_block
from trainmaster.runs.log.log_lines import (
    LONGEST_LINE_BYTES,
    LogLine,
    begin_of_line,
    end_of_line,
    line_between,
)

_BLOCK_BYTES = 1 << 20
_SMALL_BLOCK_BYTES = 1 << 16  # where every line counts
_LONG_LINE_BYTES = 1 << 18  # most are shorter by far
_LONGEST_PATTERN = 500
_LONGEST_SEARCH_S = 5.0  # in one line
_SHARE_TO_ANSWER = 0.2  # of the time of a call: a line that is being searched, and the answer
# Where none of these occurs, the expression is found as it stands.
_SPECIAL = frozenset("\\.^$*+?{}[]()")
# What lines are parted by, and what stands for bytes that are no UTF-8.
_MADE_OTHERWISE = frozenset("\r\n\ufffd")
# What `shown` adds to a long line, and what a word ends with of which it may add the end.
_ADDED = frozenset("… (0123456789morecharts)")
_ADDED_ENDS = (" ", "…")
# The characters that `shown` removes, and the first bytes of others.
_REMOVED = bytes((*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F))
_MAY_BE_REMOVED = b"\xc2\xcd\xd8\xe1\xe3\xef\xf0\xf3\xf4"
_OTHERS = bytes(byte for byte in range(256) if byte not in _REMOVED + _MAY_BE_REMOVED)
_HIDES = b"[%s]|\xe2(?:\x80[\x8b-\x8f\xa8-\xae]|\x81[\xa0-\xaf])" % re.escape(
    _REMOVED + _MAY_BE_REMOVED
)


class LogSearch:
    """An expression, and when searching stops where it stands: once most of the call's time is
    over, and without an expression by bytes. There is room for one line of any length, and for
    `limit` of 256 KiB.

    Raises:
        UsageError: `BAD_ARGUMENT`, the expression can't be used.
    """

    def __init__(self, grep: str | None = None, limit: int = 1) -> None:
        self._compiled: regex.Pattern[str] | None = None
        self._words: list[bytes] | None = None
        if grep is not None:
            self._compiled = _compiled(grep)
            self._words = _words(grep)
        self._may_be_added = any(_may_be_added(word.decode()) for word in self._words or ())
        self._places = re.compile(b"|".join([*map(re.escape, self._words or ()), _HIDES]))
        self._block_bytes = _SMALL_BLOCK_BYTES if self._words is None else _BLOCK_BYTES
        self._left_bytes = LONGEST_LINE_BYTES + limit * _LONG_LINE_BYTES
        self._left_s = current_work().left_s
        self._reserve_s = (self._left_s() or 0.0) * _SHARE_TO_ANSWER

    @property
    def is_over(self) -> bool:
        """Whether the time is used up, or what is read for lines that are all wanted."""
        if self._compiled is None and self._left_bytes < 0:
            return True
        left_s = self._left_s()
        return left_s is not None and left_s <= self._reserve_s

    def shown(self, line: LogLine) -> str | None:
        """The line as it is shown, if it matches.

        Raises:
            UsageError: `BAD_ARGUMENT`, searching this line takes too long.
        """
        text = shown(line.text, left_out=line.left_out)
        if self._compiled is None:
            return text
        try:
            match = self._compiled.search(text, timeout=self._line_s(), concurrent=True)
        except TimeoutError:
            raise _unusable(f"it took more than {self._line_s():.1g} s on one line") from None
        return None if match is None else text

    def _line_s(self) -> float:
        return min(_LONGEST_SEARCH_S, self._reserve_s or _LONGEST_SEARCH_S)

    def from_(
        self, file: BinaryIO, offset: int, *, with_torn_end: bool
    ) -> Iterator[tuple[str | None, int]]:
        """The lines that match from `offset` on, each with the offset behind it; None in place of a
        line for a place up to which nothing more was found."""
        at, size = offset, file.seek(0, 2)  # what is added meanwhile comes with the next cursor
        while at < size and (block := self._block(file, at, size)):
            end = block.rfind(b"\n") + 1
            if end:
                for line in self._candidates(block[:end], at):
                    yield self.shown(line), line.end
                at += end
                yield None, at
                continue
            behind = end_of_line(file, at, with_torn_end=with_torn_end)
            if behind is None:
                return
            yield self._long_line(file, at, behind), behind
            at = behind

    def before(self, file: BinaryIO, end: int) -> Iterator[tuple[str | None, int]]:
        """The lines that match before `end`, the last one first, each with an offset before which
        the search continues; None in place of a line where nothing was found from there on."""
        behind = end
        while behind > 0:
            begin = max(0, behind - self._block_bytes)
            block = self._block(file, begin, behind)
            cut = block.find(b"\n") + 1 if begin else 0
            if begin and cut in (0, len(block)):  # the line is longer than the block
                begin = begin_of_line(file, behind)
                yield self._long_line(file, begin, behind), begin
                behind = begin
                continue
            for line in reversed(list(self._candidates(block[cut:], begin + cut))):
                yield self.shown(line), line.end - len(line.text) - 1
            behind = begin + cut
            yield None, behind

    def _block(self, file: BinaryIO, begin: int, end: int) -> bytes:
        block = read_block(file, begin, min(self._block_bytes, end - begin))
        self._left_bytes -= len(block)
        return block

    def _long_line(self, file: BinaryIO, begin: int, end: int) -> str | None:
        self._left_bytes -= end - begin
        return self.shown(line_between(file, begin, end))

    def _candidates(self, block: bytes, offset: int) -> Iterator[LogLine]:
        """The lines of a block that may match, in order."""
        if self._words is None or (self._may_be_added and _has_long_lines(block)):
            start = offset
            for text in block.removesuffix(b"\n").split(b"\n"):
                yield LogLine(text, start + len(text) + 1)
                start += len(text) + 1
            return
        if not any(word in block for word in self._words) and not block.translate(None, _OTHERS):
            return
        end = 0
        while match := self._places.search(block, end):
            begin = block.rfind(b"\n", 0, match.start()) + 1
            end = block.find(b"\n", match.start())
            end = len(block) if end < 0 else end
            yield LogLine(block[begin:end], offset + end + 1)


def _has_long_lines(block: bytes) -> bool:
    return max(map(len, block.split(b"\n"))) > LONGEST_LINE


def _words(grep: str) -> list[bytes] | None:
    """The words of which a matching line must contain one; None where that is not known."""
    words = grep.split("|")
    is_plain = _SPECIAL.isdisjoint(grep) and _MADE_OTHERWISE.isdisjoint(grep)
    if not all(words) or not is_plain:
        return None
    try:
        return [word.encode() for word in words]
    except UnicodeEncodeError:
        return None


def _may_be_added(word: str) -> bool:
    return _ADDED.issuperset(word) or word.endswith(_ADDED_ENDS)


def _compiled(grep: str) -> regex.Pattern[str]:
    if len(grep) > _LONGEST_PATTERN:
        raise _unusable(f"it is longer than {_LONGEST_PATTERN} characters")
    try:
        return regex.compile(grep)
    except regex.error as error:
        raise _unusable(str(error)) from error


def _unusable(why: str) -> UsageError:
    return UsageError(
        "BAD_ARGUMENT",
        f"The expression can't be used: {why}.",
        "Give a simpler regular expression, special characters escaped by a backslash.",
        field="grep",
    )
