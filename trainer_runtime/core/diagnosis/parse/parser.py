"""The incremental parser of a training log: bytes in, points and events out."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

from trainer_runtime.core.diagnosis.parse.bars import BAR, Bars
from trainer_runtime.core.diagnosis.parse.block_tokens import tokens_of
from trainer_runtime.core.diagnosis.parse.clock import Clock
from trainer_runtime.core.diagnosis.parse.context import Context
from trainer_runtime.core.diagnosis.parse.coverage import Coverage, with_numbers
from trainer_runtime.core.diagnosis.parse.joined_objects import begun, joined
from trainer_runtime.core.diagnosis.parse.line import LONGEST_LINE, LineReader
from trainer_runtime.core.diagnosis.parse.objects import rows_of_objects
from trainer_runtime.core.diagnosis.parse.pattern import Pattern, patterns_of
from trainer_runtime.core.diagnosis.parse.points import (
    BELOW_COUNTER,
    UNNAMED,
    WITHIN_EPOCHS,
    Heading,
    LogEvent,
    Parsed,
    Reading,
)
from trainer_runtime.core.diagnosis.parse.rows import Block, Gathered, Rows, rows_of_template
from trainer_runtime.core.diagnosis.parse.shapes import Shapes
from trainer_runtime.core.diagnosis.parse.sorted_lines import Sorted
from trainer_runtime.core.diagnosis.parse.tables import (
    HEADER_WITHIN_BYTES,
    MOST_TABLES,
    Table,
    begun_header,
    headers_in,
    table_of,
)
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.tokens import Tokens

MAX_KEYS = 512
_LONGEST_TEXT = 300  # of an event
BLOCK_BYTES = 1 << 17  # read at once; fits the processor's cache
_FORMAT = 3


class LogParser:
    """Reads a log of any known dialect, incrementally.

    The points do not depend on how the stream is cut. Lines end with a line feed or a carriage
    return; lines over 64 KiB are skipped. Memory is bounded for any input: the parser keeps the
    first 512 metric keys, 16,384 ranks, and a few samples of lines that it could not parse. Only
    steps, epochs and known keys affect how later lines are read.
    """

    def __init__(
        self, keys: Collection[str] | None = None, patterns: Sequence[Pattern] = ()
    ) -> None:
        """`keys`: the metrics that will be read; None: all. Others cost less until they are.
        `patterns`: shapes of lines that were taught; they come before the known ones."""
        self._patterns = tuple(patterns)
        self._wanted = keys
        self._tail = b""
        self._offset = 0  # of the tail's first byte
        self._skipping = False  # within a line that is too long
        self._keys: set[str] = set()
        self._clock = Clock()
        self._context = Context()
        self._bars = Bars()
        self._tables: list[Table] = []
        self._shapes = Shapes(LineReader(self._patterns))
        self.coverage = Coverage()

    @property
    def total_steps(self) -> int | None:
        """The planned number of steps; None where the log does not contain it."""
        steps = self._clock.facts.get("total_steps")
        return None if steps is None else int(steps)

    def feed(self, data: bytes) -> Parsed:
        """The points of the lines that `data` completes. `data` may end anywhere."""
        parsed = Parsed()
        for start in range(0, len(data), BLOCK_BYTES):
            self._feed(data[start : start + BLOCK_BYTES], parsed)
        return parsed

    def close(self) -> Parsed:
        """The points of a last line without an end. Don't feed anything afterwards."""
        parsed = Parsed()
        if self._tail:
            data, self._tail = self._tail + b"\n", b""
            self._read(data, parsed, last=True)
        return parsed

    def to_dict(self) -> dict[str, Any]:
        """The complete state as JSON values, for `from_dict`."""
        return {
            "format": _FORMAT,
            "tail": base64.b64encode(self._tail).decode(),
            "offset": self._offset,
            "skipping": self._skipping,
            "keys": sorted(self._keys),
            "patterns": [pattern.text for pattern in self._patterns],
            "tables": [table.header.decode() for table in self._tables],
            "clock": self._clock.to_dict(),
            "context": self._context.to_dict(),
            "bars": self._bars.to_dict(),
            "coverage": self.coverage.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LogParser:
        """The parser whose state `to_dict` returned.

        Raises:
            ValueError: the state has another format version.
        """
        if data.get("format") != _FORMAT:
            raise ValueError(f"parser state of format {data.get('format')!r} is not supported")
        taught = "\n".join(data.get("patterns", ()))
        parser = cls(patterns=patterns_of(taught) if taught else ())
        parser._tail = base64.b64decode(data["tail"])
        parser._offset = data["offset"]
        parser._skipping = data["skipping"]
        parser._keys = set(data["keys"])
        for text in data.get("tables", ()):
            if (table := table_of(text.encode())) is not None:
                parser._take_table(table)
        parser._clock = Clock.from_dict(data["clock"])
        parser._context = Context.from_dict(data["context"])
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
        start = self._tail.rfind(b"\n") + 1  # lines that wait for others may precede it
        if len(self._tail) - start > LONGEST_LINE:
            begun_line, self._tail = self._tail[start:], self._tail[:start]
            self._read(self._tail, parsed, last=True)
            self._skip(len(begun_line))
            self._tail, self._skipping = b"", True

    def _read_lines(self, data: bytes, parsed: Parsed) -> None:
        """Read whole lines. One that is too long is skipped; lines before it stop waiting."""
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
        """Read whole lines. Lines that wait for others below them return to the tail."""
        data = joined(data)
        if not last and (at := self._begun(data)) is not None:
            data, self._tail = data[:at], data[at:] + self._tail
        if not data:
            return
        found = self._new_table(data)
        if found is None:
            self._read_block(data, parsed, last=last)
            return
        begin, table = found
        self._read_block(data[:begin], parsed, last=True)
        self._take_table(table)
        self._read(data[begin:], parsed, last=last)

    def _begun(self, data: bytes) -> int | None:
        """Where an object or a header begins that continues below these lines."""
        at = begun(data)
        is_early = self._offset < HEADER_WITHIN_BYTES
        return begun_header(data) if at is None and is_early else at

    def _read_block(self, data: bytes, parsed: Parsed, *, last: bool) -> None:
        block = Block(data, self._offset)
        sorted_lines = self._shapes.sort(block)
        all_rows, bar_lines = self._rows(block, sorted_lines)
        waiting = () if last else (self._bars.waits, self._context.waits)
        for wait in waiting:
            waits = wait(block, all_rows)
            if waits is None:
                continue
            end = block.start_of(waits) - self._offset
            self._tail = data[end:] + self._tail
            block, sorted_lines.noise_with_numbers = Block(data[:end], self._offset), None
            all_rows = [cut for rows in all_rows if (cut := rows.before(waits)) is not None]
            bar_lines = [line for line in bar_lines if line < waits]
        if not block.data:
            return
        self._offset += len(block.data)
        self.coverage.lines_with_numbers += _with_numbers(block, sorted_lines)
        self.coverage.lines_read += _lines_read(all_rows) + len(bar_lines)
        all_rows.sort(key=_first_line)  # however the lines were read
        for rows in all_rows:
            like = rows.like
            if rows.keys or like.taught:
                self.coverage.count(like.clock, len(rows.index), is_taught=like.taught)
        all_rows, left_out = self._context.complete(all_rows, block)
        self._note_completed(block, all_rows, left_out)
        self._clock.settle(all_rows, self._bars.bar_lookup(block, all_rows, bar_lines))
        self._bars.advance(block)
        self._yield(block, all_rows, parsed)
        block.forget_lines()

    def _note_completed(
        self, block: Block, all_rows: Sequence[Rows], left_out: Sequence[Rows]
    ) -> None:
        """Count the rows that got their step from lines above, and those that have none."""
        own = (BELOW_COUNTER, UNNAMED, WITHIN_EPOCHS)
        self.coverage.lines_read += sum(
            len(rows.index) for rows in all_rows if rows.like.clock in own
        )
        for rows in left_out:
            self.coverage.within_epochs += len(rows.index)
            self.coverage.sample(block.line(rows.index[0]))

    def _new_table(self, data: bytes) -> tuple[int, Table] | None:
        """A table whose header stands in these lines, and where its rows begin."""
        if self._offset >= HEADER_WITHIN_BYTES or len(self._tables) >= MOST_TABLES:
            return None
        known = {table.header for table in self._tables}
        found = headers_in(data, HEADER_WITHIN_BYTES - self._offset)
        return next((one for one in found if one[1].header not in known), None)

    def _take_table(self, table: Table) -> None:
        """Read the rows of this table, too, from here on."""
        self._tables.append(table)
        self._shapes = Shapes(LineReader((*self._patterns, *self._tables)))

    def _rows(self, block: Block, sorted_lines: Sorted) -> tuple[list[Rows], list[int]]:
        """The rows of the lines, not yet in order, and the lines that are bars without metrics."""
        all_rows: list[Rows] = []
        singly = sorted_lines.singly
        tokens = tokens_of(block, sorted_lines)
        for template, index in sorted_lines.by_template.items():
            rows, others = rows_of_template(template, tokens[template], index, self._wanted)
            all_rows += rows
            if others:
                singly = [*singly, *self._read_by_siblings(block, template, others, all_rows)]
        if sorted_lines.objects:
            rows, others = rows_of_objects(block, sorted_lines.objects)
            all_rows += rows
            singly = [*singly, *others]
        bar_lines = list(sorted_lines.progress)
        if singly:
            bar_lines += self._read_singly(block, sorted(singly), all_rows)
        return all_rows, bar_lines

    def _read_by_siblings(
        self, block: Block, template: Template, index: Sequence[int], all_rows: list[Rows]
    ) -> Sequence[int]:
        """Add the rows of lines that differ from their template in fixed numbers; those left."""
        for sibling in self._shapes.siblings(template):
            texts = sibling.split(b"\n".join(block.lines_at(index)))
            tokens = Tokens(texts, len(index), None)
            rows, index = rows_of_template(sibling, tokens, index, self._wanted)
            all_rows += rows
            if not index:
                break
        return index

    def _read_singly(self, block: Block, singly: list[int], all_rows: list[Rows]) -> list[int]:
        bar_lines = []
        gathered = Gathered()
        for i, line in zip(singly, block.lines_at(singly), strict=True):
            readings = self._shapes.read(line)
            if readings:
                gathered.add(readings, i)
                if _may_be_left_out(readings[0]):
                    self.coverage.sample(line)
            elif BAR in line:
                bar_lines.append(i)
            else:
                self.coverage.sample(line)
        all_rows += gathered.rows()
        return bar_lines

    def _yield(self, block: Block, all_rows: list[Rows], parsed: Parsed) -> None:
        with_events = []
        for rows in all_rows:
            kept = [self._keeps(key, rows) for key in rows.keys]
            parsed.batches += rows.batches(block, kept)
            if rows.like.events:
                with_events.append(rows)
        parsed.events += _events(block, with_events)

    def _keeps(self, key: str, rows: Rows) -> bool:
        if key in self._keys:
            return True
        if len(self._keys) < MAX_KEYS:
            self._keys.add(key)
            return True
        self.coverage.keys_left_out += sum(len(part.rows) for part in rows.accepted)
        return False


def _first_line(rows: Rows) -> int:
    return rows.index[0]


def _events(block: Block, all_rows: Sequence[Rows]) -> list[LogEvent]:
    """The events of rows, in the order of their lines."""
    found: list[LogEvent] = []
    for rows in all_rows:
        count = len(rows.index)
        steps = [None] * count if rows.event_steps is None else list(map(int, rows.event_steps))
        starts = block.starts_of(rows.index)
        for kind, text in rows.like.events:
            made = zip(repeat(kind), steps, repeat(rows.rank), starts, repeat(text[:_LONGEST_TEXT]))
            found += map(LogEvent._make, made)
    found.sort(key=attrgetter("line_offset"))
    return found


def _with_numbers(block: Block, found: Sorted) -> int:
    """The number of lines with numbers; those read by a template always have."""
    by_template = sum(map(len, found.by_template.values()))
    if by_template == block.count and found.noise_with_numbers is not None:
        return by_template
    others = [*found.progress, *found.singly, *found.objects]
    if found.noise_with_numbers is None or len(others) * 2 > block.count:
        return with_numbers(block.data)
    in_others = with_numbers(b"\n".join(block.lines_at(others)))
    return by_template + found.noise_with_numbers + in_others


def _may_be_left_out(reading: Reading) -> bool:
    """Whether it depends on other lines that the line is read."""
    if reading.heads is not None:
        return reading.heads is not Heading.EPOCH
    return reading.clock in (BELOW_COUNTER, UNNAMED, WITHIN_EPOCHS)


def _lines_read(all_rows: list[Rows]) -> int:
    """The number of lines with rows; only those that were read singly may have several."""
    read = [rows for rows in all_rows if not _may_be_left_out(rows.like)]
    single = {rows.index[0] for rows in read if len(rows.index) == 1}
    return len(single) + sum(len(rows.index) for rows in read if len(rows.index) > 1)
