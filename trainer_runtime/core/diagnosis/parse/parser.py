"""Any training's log, as it grows: bytes in, points and events out."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from trainer_runtime.core.diagnosis.parse.bars import BAR, Bars
from trainer_runtime.core.diagnosis.parse.clock import Clock
from trainer_runtime.core.diagnosis.parse.coverage import Coverage, with_numbers
from trainer_runtime.core.diagnosis.parse.line import LONGEST_LINE
from trainer_runtime.core.diagnosis.parse.objects import rows_of_objects
from trainer_runtime.core.diagnosis.parse.points import LogEvent, Parsed
from trainer_runtime.core.diagnosis.parse.rows import Block, Rows, rows_of_reading, rows_of_template
from trainer_runtime.core.diagnosis.parse.shapes import Shapes, Sorted

MOST_KEYS = 512
_LONGEST_TEXT = 300  # of an event
_BLOCK_BYTES = 1 << 17  # what is read at once; fits the processor's cache
_FORMAT = 1


class LogParser:
    """Reads a log of any known dialect, incrementally.

    However the stream is cut, the points are the same. A line is what stands between line feeds or
    carriage returns; one of over 64 KiB is passed over. Memory is bounded whatever is fed: of
    metric keys the first 512 are kept, of ranks 16,384, of what was not understood a few samples.
    Nothing in the log changes how later lines are read but steps, epochs and the keys seen.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._offset = 0  # of the tail's first byte
        self._skipping = False  # within a line that is too long
        self._keys: set[str] = set()
        self._clock = Clock()
        self._bars = Bars()
        self._shapes = Shapes()
        self.coverage = Coverage()

    @property
    def total_steps(self) -> int | None:
        """How many steps the run means to take, where the log says so."""
        steps = self._clock.facts.get("total_steps")
        return None if steps is None else int(steps)

    def feed(self, data: bytes) -> Parsed:
        """The points of the lines that `data` completes. `data` may end anywhere."""
        parsed = Parsed()
        for start in range(0, len(data), _BLOCK_BYTES):
            self._feed(data[start : start + _BLOCK_BYTES], parsed)
        return parsed

    def close(self) -> Parsed:
        """The points of a last line without an end. Nothing is to be fed afterwards."""
        parsed = Parsed()
        if self._tail:
            data, self._tail = self._tail + b"\n", b""
            self._read(data, parsed, last=True)
        return parsed

    def to_dict(self) -> dict[str, Any]:
        """All that a later process needs to go on, fit for JSON."""
        return {
            "format": _FORMAT,
            "tail": base64.b64encode(self._tail).decode(),
            "offset": self._offset,
            "skipping": self._skipping,
            "keys": sorted(self._keys),
            "clock": self._clock.to_dict(),
            "bars": self._bars.to_dict(),
            "coverage": self.coverage.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LogParser:
        """The parser that `to_dict` described.

        Raises:
            ValueError: it was written by another format version.
        """
        if data.get("format") != _FORMAT:
            raise ValueError(f"parser state of format {data.get('format')!r} is not read here")
        parser = cls()
        parser._tail = base64.b64decode(data["tail"])
        parser._offset = data["offset"]
        parser._skipping = data["skipping"]
        parser._keys = set(data["keys"])
        parser._clock = Clock.from_dict(data["clock"])
        parser._bars = Bars.from_dict(data["bars"])
        parser.coverage = Coverage.from_dict(data["coverage"])
        return parser

    def _feed(self, data: bytes, parsed: Parsed) -> None:
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        if self._skipping:
            end = data.find(b"\n")
            self._offset += len(data) if end < 0 else end + 1
            if end < 0:
                return
            self._skipping, data = False, data[end + 1 :]
        whole = self._tail + data if self._tail else data
        end = whole.rfind(b"\n") + 1
        self._tail = whole[end:]
        if end:
            self._read_lines(whole[:end], parsed)
        begun = self._tail.rfind(b"\n") + 1  # what waits for a bar may stand before it
        if len(self._tail) - begun > LONGEST_LINE:
            begun_line, self._tail = self._tail[begun:], self._tail[:begun]
            self._read(self._tail, parsed, last=True)
            self._skip(len(begun_line))
            self._tail, self._skipping = b"", True

    def _read_lines(self, data: bytes, parsed: Parsed) -> None:
        """Whole lines; one that is too long is passed over and ends what waits before it."""
        start = at = 0
        while at < len(data):
            end = data.rfind(b"\n", at, at + LONGEST_LINE + 1) + 1
            if not end:
                self._read(data[start:at], parsed, last=True)
                start = end = data.find(b"\n", at) + 1
                self._skip(end - at)
            at = end
        self._read(data[start:], parsed, last=False)

    def _skip(self, length: int) -> None:
        self.coverage.too_long += 1
        self._offset += length

    def _read(self, data: bytes, parsed: Parsed, *, last: bool) -> None:
        """Take in whole lines. What waits for a bar below it goes back to the tail."""
        if not data:
            return
        block = Block(data, self._offset)
        sorted_lines = self._shapes.sort(block)
        all_rows, bar_lines = self._rows(block, sorted_lines)
        waits = None if last else self._bars.waits(block, all_rows)
        if waits is not None:
            end = block.start_of(waits) - self._offset
            self._tail = data[end:] + self._tail
            block, sorted_lines.noise = Block(data[:end], self._offset), None
            all_rows = [cut for rows in all_rows if (cut := rows.before(waits)) is not None]
            bar_lines = [line for line in bar_lines if line < waits]
        if not block.data:
            return
        self._offset += len(block.data)
        self.coverage.lines_with_numbers += _with_numbers(block, sorted_lines)
        self.coverage.lines_read += _lines_read(all_rows) + len(bar_lines)
        self._clock.settle(all_rows, self._bars.asker(block, all_rows))
        self._bars.advance(block)
        self._yield(block, all_rows, parsed)

    def _rows(self, block: Block, sorted_lines: Sorted) -> tuple[list[Rows], list[int]]:
        """What the lines say, not yet in order, and the lines that are bars without metrics."""
        all_rows: list[Rows] = []
        singly = sorted_lines.singly
        for template, index in sorted_lines.by_template.items():
            rows = rows_of_template(template, _text(block, index), index)
            if rows is None:
                singly = [*singly, *index]
            else:
                all_rows += rows
        if sorted_lines.objects:
            rows, others = rows_of_objects(block, sorted_lines.objects)
            all_rows += rows
            singly = [*singly, *others]
        return all_rows, self._read_singly(block, sorted(singly), all_rows)

    def _read_singly(self, block: Block, singly: list[int], all_rows: list[Rows]) -> list[int]:
        bar_lines = []
        for i in singly:
            line = block.lines[i]
            readings = self._shapes.read(line)
            all_rows += [rows_of_reading(reading, i) for reading in readings]
            if readings:
                continue
            if BAR in line:
                bar_lines.append(i)
            else:
                self.coverage.sample(line)
        return bar_lines

    def _yield(self, block: Block, all_rows: list[Rows], parsed: Parsed) -> None:
        for rows in sorted(all_rows, key=_first_line):
            kept = [self._keeps(key, rows) for key in rows.keys]
            parsed.batches += rows.batches(block, kept)
            for kind, text in rows.like.events:
                step = None if rows.told_at is None else int(rows.told_at)
                offset = block.start_of(rows.index[0])
                told = LogEvent(kind, step, rows.rank, offset, text[:_LONGEST_TEXT])
                parsed.events.append(told)

    def _keeps(self, key: str, rows: Rows) -> bool:
        if key in self._keys:
            return True
        if len(self._keys) < MOST_KEYS:
            self._keys.add(key)
            return True
        self.coverage.keys_left_out += sum(part.end - part.first for part in rows.accepted)
        return False


def _text(block: Block, index: Sequence[int]) -> bytes:
    if isinstance(index, range) or len(index) == len(block.lines):
        return block.data
    if len(index) == 1:
        return block.lines[index[0]]
    return b"\n".join(itemgetter(*index)(block.lines))


def _first_line(rows: Rows) -> int:
    return rows.index[0]


def _with_numbers(block: Block, found: Sorted) -> int:
    """How many lines have numbers; those that were read by a template or as objects have."""
    others = None if found.noise is None else [*found.noise, *found.singly]
    if others is None or len(others) * 4 > len(block.lines):
        return with_numbers(block.data)
    known = len(found.objects) + sum(map(len, found.by_template.values()))
    return known + (with_numbers(_text(block, others)) if others else 0)


def _lines_read(all_rows: list[Rows]) -> int:
    if len(all_rows) == 1:
        return len(all_rows[0].index)
    return len(set().union(*(rows.index for rows in all_rows)))
