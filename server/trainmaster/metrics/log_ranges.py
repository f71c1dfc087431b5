"""Reads a long log range by range on several cores, exactly as one process reads it.

How a line is read depends on those above it. So each process guesses the parser's state at the
begin of its range from the lines just above, and its points count only if the guess is the state at
the end of the range before. A range whose guess was wrong is read again.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, BinaryIO

from trainer_runtime.core.diagnosis.parse import Coverage
from trainer_runtime.core.diagnosis.parse.parser import BLOCK_BYTES
from trainer_runtime.core.records import dataclass
from trainmaster.errors.errors import UsageError
from trainmaster.metrics.log_file import chunks_between, open_log
from trainmaster.metrics.range_points import PointReader, RangePoints
from trainmaster.metrics.range_processes import in_processes

_RANGE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20  # read by this process until it reports its progress
_WARM_UP_BYTES = 1 << 17
_LONGEST_WARM_UP_BYTES = 1 << 20
_LONGEST_NOISE_BYTES = 8 << 20  # so far back a line with metrics is searched for
_MOST_ALONE = 6  # doublings of what one process reads after a wrong guess
_TRUSTED = 4  # so many guesses that were right make earlier ones forgotten


@dataclass(frozen=True, slots=True)
class Splitting:
    """Over how many processes beside this one a log is read, and in ranges of how many bytes at
    most. With fewer than two this process reads it."""

    processes: int = 0
    range_bytes: int = _RANGE_BYTES


WHOLE = Splitting()


class _Above(Enum):
    """What precedes a range: noise says nothing of the parser's state."""

    METRICS = auto()
    NOISE = auto()
    NO_LINE = auto()  # none begins there


@dataclass(frozen=True, slots=True)
class _Guess:
    """What a range holds, read from a guessed state: that state, and the one at its end."""

    begin_state: dict[str, Any]
    end_state: dict[str, Any]
    points: RangePoints
    read_bytes: int


def read_ranges(
    path: Path, reader: PointReader, splitting: Splitting
) -> Generator[tuple[int, RangePoints]]:
    """The points of each range, in order, with the number of bytes that were read so far. The last
    line may still wait in the reader. Nothing is read beyond the size at the time of opening.

    Raises:
        UsageError: `LOG_NOT_READABLE`.
    """
    with open_log(path) as file:
        log = _Log(path, file, os.fstat(file.fileno()).st_size)
        yield from _Ranges(log, reader, splitting).read()


@dataclass(frozen=True, slots=True)
class _Log:
    path: Path
    file: BinaryIO
    size: int

    def feed(self, reader: PointReader, begin: int, end: int) -> int:
        """Read a part, whose end is the edge of a block or the log's. Returns how many bytes it
        had: fewer where the log has become shorter."""
        at = begin
        for chunk in chunks_between(self.path, self.file, begin, end):
            start = 0
            while start < len(chunk):  # blocks are used while they are in the cache
                until = start + BLOCK_BYTES - (at + start) % BLOCK_BYTES
                reader.feed(chunk[start:until])
                start = until
            at += len(chunk)
        return at - begin

    def line_begin(self, begin: int, end: int) -> int | None:
        """Where the first line begins that does so in a part; None if none does."""
        if not begin:
            return 0
        above = begin - 1
        for chunk in chunks_between(self.path, self.file, above, end):
            ends = [at for at in (chunk.find(b"\n"), chunk.find(b"\r")) if at >= 0]
            if ends:
                return above + min(ends) + 1
            above += len(chunk)
        return None


@dataclass(slots=True)
class _Ranges:
    """Reads a log, whose first `at` bytes are read. `wrong`: how many guesses in a row were so."""

    log: _Log
    reader: PointReader
    splitting: Splitting
    at: int = 0
    wrong: int = 0
    warm_up_bytes: int = _WARM_UP_BYTES
    has_ended: bool = False

    def read(self) -> Iterator[tuple[int, RangePoints]]:
        if self.splitting.processes < 2:
            yield from self._alone(self.log.size)
        alone_bytes = self.splitting.range_bytes // 4  # from these the others are guessed
        while self.at < self.log.size and not self.has_ended:
            yield from self._alone(alone_bytes)
            yield from self._together()
            alone_bytes = self.splitting.range_bytes << min(self.wrong, _MOST_ALONE) - 1

    def _advance(self, end: int, read_bytes: int) -> None:
        self.has_ended = self.at + read_bytes < end
        self.at += read_bytes

    def _alone(self, length: int) -> Iterator[tuple[int, RangePoints]]:
        """Read so many bytes in this process."""
        until = min(self.at + _aligned(length), self.log.size)
        while self.at < until and not self.has_ended:
            end = min(self.at + _CHUNK_BYTES, until)
            self._advance(end, self.log.feed(self.reader, self.at, end))
            yield self.at, self.reader.taken()

    def _together(self) -> Iterator[tuple[int, RangePoints]]:
        """Read on several cores, until a guess is wrong."""
        right, parser = 0, self.reader.parser
        for (_, end), found in in_processes(self._guess, self._cut(), self.splitting.processes):
            if found is None:
                break
            shifts = parser.take_over(found.begin_state, found.end_state)
            if shifts is None:
                break
            right += 1
            self._advance(end, found.read_bytes)
            yield self.at, found.points.shifted(shifts)
            if self.has_ended:
                return
        self.wrong = self.wrong + 1 if right < _TRUSTED else 1
        self.warm_up_bytes = min(2 * self.warm_up_bytes, _LONGEST_WARM_UP_BYTES)

    def _cut(self) -> Iterator[tuple[int, int]]:
        """The ranges of what is left, towards the end shorter, so that all cores end together."""
        at, size = self.at, self.log.size
        most = self.splitting.range_bytes
        while at < size:
            share = (size - at) // (2 * self.splitting.processes)
            end = min(at + _aligned(max(min(share, most), most // 4)), size)
            yield at, end
            at = end

    def _guess(self, begin: int, end: int) -> _Guess | None:
        """What a range holds, read in a process of its own; None where that is not possible."""
        length = self.warm_up_bytes
        try:
            above = self._warm_up(begin, length)
            # Noise alone is read alike in any state: what is above it need not be known.
            if above is _Above.NOISE and (guess := self._read(begin, end, noise_alone=True)):
                return guess
            while above is _Above.NOISE and length < _LONGEST_NOISE_BYTES:
                length *= 4
                above = self._warm_up(begin, length)
            return None if above is _Above.NO_LINE else self._read(begin, end)
        except UsageError:
            return None  # reported where the range is read again

    def _warm_up(self, begin: int, length: int) -> _Above:
        """Read so many bytes above a range."""
        start = self.log.line_begin(max(0, begin - length), begin)
        if start is None:
            return _Above.NO_LINE
        self.reader.parser.jump(start)
        self.log.feed(self.reader, start, begin)
        self.reader.taken()
        is_known = self.reader.parser.coverage.lines_read or not start
        return _Above.METRICS if is_known else _Above.NOISE

    def _read(self, begin: int, end: int, *, noise_alone: bool = False) -> _Guess | None:
        """Read a range in the state that the parser is in; `noise_alone`: None where it is not."""
        parser = self.reader.parser
        parser.coverage = Coverage()
        state, at = parser.to_dict(), begin
        while at < end:
            until = min(at + _WARM_UP_BYTES, end) if noise_alone else end
            read_bytes = self.log.feed(self.reader, at, until)
            at += read_bytes
            if noise_alone and parser.coverage.lines_read:
                self.reader.taken()
                return None
            if at < until:  # the log has become shorter
                break
        return _Guess(state, parser.to_dict(), self.reader.taken(), at - begin)


def _aligned(length: int) -> int:
    """Rounded up to whole blocks: so lines are read in the same ones however a log is split."""
    return -(-length // BLOCK_BYTES) * BLOCK_BYTES
