"""Scans a log for failure signatures, in pieces of any size and with bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.diagnosis.kinds import Kind
from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE
from trainer_runtime.core.diagnosis.signatures.catalogue.rows import of_kinds
from trainer_runtime.core.diagnosis.signatures.episodes import MARKERS, Episode, EpisodeLog
from trainer_runtime.core.diagnosis.signatures.line_matcher import LineMatcher
from trainer_runtime.core.diagnosis.signatures.log_blocks import ANSI, Block, BlockReader, Line
from trainer_runtime.core.diagnosis.signatures.shapes import (
    Keywords,
    ShapeIndex,
    ShapeKind,
    shapes_of,
)
from trainer_runtime.core.diagnosis.signatures.signature import Occurrence

_KEYWORDS = Keywords(CATALOGUE, MARKERS)


def _with_own(kinds: Sequence[Kind]) -> Keywords:
    return Keywords((*of_kinds(kinds), *CATALOGUE), MARKERS)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a scan found: the failures of the last episode, those that training survived, and the
    cumulative ones of the whole log. `tail` is the end of the log, from `tail_offset` on."""

    episode: Episode
    survived: Mapping[str, Occurrence]
    cumulative: Mapping[str, Occurrence]
    progress_seen: bool
    tail: bytes = b""
    tail_offset: int = 0


class SignatureScan:
    """Feed it the bytes of a log in any pieces, then ask for the `result`.

    The result is the same however the bytes are cut. `offset` is the log's byte where they begin.
    `own`: kinds that are tried like those of the catalogue.

    Almost all lines are passed over by their shape (`ShapeIndex`). Lines whose shape may be a
    failure are matched one by one (`LineMatcher`), and the matches recorded (`EpisodeLog`).
    """

    def __init__(self, offset: int = 0, own: Sequence[Kind] = ()) -> None:
        self._blocks = BlockReader(offset)
        self._index = ShapeIndex(_with_own(own) if own else _KEYWORDS)
        self._matcher = LineMatcher()
        self._log = EpisodeLog()

    @property
    def offset(self) -> int:
        """The log's byte up to which lines were read."""
        return self._blocks.offset

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`. What follows `offset` has to be fed again."""
        return {
            "blocks": self._blocks.to_dict(),
            "log": self._log.to_dict(),
            "progress_seen": self._index.progress_seen,
        }

    @classmethod
    def from_dict(cls, memory: Mapping[str, Any]) -> SignatureScan:
        """Raises:
        KeyError, TypeError, ValueError: another version has written it.
        """
        scan = cls()
        scan._blocks = BlockReader.from_dict(memory["blocks"])
        scan._log = EpisodeLog.from_dict(memory["log"])
        scan._index.progress_seen = memory["progress_seen"]
        return scan

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        for block in self._blocks.feed(data):
            self._read(block)

    def finish(self) -> None:
        """Take in the last line where it has no line end."""
        for block in self._blocks.finish():
            self._read(block)

    def result(self) -> ScanResult:
        """What was found so far, at any time; a last line without an end counts after `finish`."""
        log, tail = self._log, self._blocks.tail()
        return ScanResult(
            log.episode,
            log.survived,
            log.cumulative,
            self._index.progress_seen,
            tail,
            self._blocks.offset - len(tail),
        )

    def _read(self, block: Block) -> None:
        data = block.data
        shapes = shapes_of(ANSI.sub(b"", data) if b"\x1b" in data else data)
        if shapes[-1] == b"":
            shapes.pop()
        different = set(shapes)
        self._index.learn(different)
        if self._log.summary_left or not self._index.read_shapes.isdisjoint(different):
            self._read_lines(block, shapes)
        elif self._log.unsettled:
            self._read_progress(shapes)
        self._index.trim()

    def _read_progress(self, shapes: list[bytes]) -> None:
        """A block without a line that has to be read."""
        kinds, log = self._index.kinds, self._log
        for shape in shapes:
            kind = kinds[shape]
            if kind.progress:
                log.progress(kind)
                if not log.unsettled:
                    return

    def _read_lines(self, block: Block, shapes: list[bytes]) -> None:
        """A block in which some lines have to be read."""
        kinds, log = self._index.kinds, self._log
        lines: list[bytes] = []
        start = index = 0
        for number, shape in enumerate(shapes):
            kind = kinds[shape]
            if not log.summary_left:
                if not kind.is_read:
                    if kind.progress and log.unsettled:
                        log.progress(kind)
                    continue
                if kind.is_predictable:
                    log.repeat(kind.repeated)
                    continue
            lines = lines or block.data.replace(b"\r", b"\n").split(b"\n")
            while index < number:
                start += len(lines[index]) + 1
                index += 1
            self._read_line(Line(block, start, lines[number]), kind)

    def _read_line(self, line: Line, kind: ShapeKind) -> None:
        log, text = self._log, line.text
        if log.summary_left:
            log.summary_line(line, text)
        matches = self._matcher.matches(line, kind.candidates)
        for match in matches:
            log.record(match, line)
        if kind.candidates:
            kind.record(match.signature for match in matches)
        if kind.marks:
            log.marker(text)
        if kind.progress and not matches and log.unsettled:
            log.progress(kind)
