"""Reads a log in pieces and remembers what failures it saw. Bounded memory, any cutting alike."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE, ROOT_EXITS
from trainer_runtime.core.diagnosis.signatures.is_quoted import credible
from trainer_runtime.core.diagnosis.signatures.shapes import Gate, Kind, shapes_of
from trainer_runtime.core.diagnosis.signatures.signature import Sighting, Signature
from trainer_runtime.core.diagnosis.signatures.slots import Slots, rank_of, slots_of

TAIL_BYTES = 1 << 15  # of what the log ends with
LONGEST_LINE = 16_384  # a longer one is read in pieces of this size
_MOST_PIECES = 4  # what follows them is passed over, but for the line's last piece
_LINE_ENDS = (b"\n", b"\r")
_BLOCK = 1 << 18  # stays in the processor's cache
_KEPT_LINE = 2_000
_BEFORE = 8_192  # where the step is looked for
_MOST_RANKS = 64
_MOST_PROVEN = 1_000
_MOST_KNOWN = 100  # lines that are read are often the same, over and over
_PROVEN = 100  # a shape whose lines all were one gathered failure needs no more reading

ANSI = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)?|[@-Z\\^_]|[ -/]+[0-~])"
)
_MARKING = (
    *("cause+root", "exitcode", "childfailederror", "restarting", "retry", "retrying", "trying"),
    *("halving", "skipping+batch", "reducing+batch", "continuing", "recovered", "falling+back"),
)
_ROOT = re.compile(r"^\W*Root Cause\b")
_ROOT_LINES = 10
_ROOT_RANK = re.compile(r"^\s*rank\s*: (\d{1,6})\b")
_ROOT_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d{1,3})\b")
_DIED = re.compile(r"ChildFailedError|\(exitcode: |Restarting worker group|workers? restart")
_RETRIES = re.compile(
    r"(?i)\b(?:retry(?:ing)?|trying (?:again|with|a |batch)|halving|skipping (?:this |the |bad )?"
    r"(?:batch|step|sample)|reducing (?:the )?(?:micro.?)?batch|continuing|recovered|"
    r"falling back)\b"
)


@dataclass(slots=True)
class Episode:
    """What was seen since training last went well. `root_*`: the first failure in torchrun's
    summary; `died`: a process ended in it."""

    sightings: dict[str, Sighting] = field(default_factory=dict)
    root_rank: int | None = None
    root_exit: int | None = None
    died: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What a scan found: the last episode, the failures that training outlived, what was
    gathered over the whole log. `tail` is what the log ends with, from `tail_offset` on."""

    episode: Episode
    outlived: Mapping[str, Sighting]
    gathered: Mapping[str, Sighting]
    progress_seen: bool
    tail: bytes = b""
    tail_offset: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and where it stands in its block."""

    block: bytes
    place: int
    raw: bytes

    @property
    def text(self) -> str:
        return ANSI.sub(b"", self.raw).decode("utf-8", errors="replace")

    def context(self, before: bytes) -> bytes:
        """The 8 KiB that end with this line; `before` is what stood before its block."""
        end = self.place + len(self.raw)
        context = self.block[max(0, end - _BEFORE) : end]
        missing = _BEFORE - len(context)
        return before[-missing:] + context if missing > 0 else context


@dataclass(frozen=True, slots=True)
class Match:
    """What a line says; `near` is the part of it that is shown."""

    signature: Signature
    slots: Slots
    near: bytes


class SignatureScan:
    """Feed it the bytes of a log in any pieces, then ask `seen`.

    `offset` is where in the log the first byte stands. `seen` may be asked at any time; a last
    line without its end counts only after `finish`.
    """

    def __init__(self, offset: int = 0) -> None:
        self._gate = Gate(CATALOGUE, _MARKING)
        self._rest = b""
        self._offset = offset
        self._before = b""
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._pieces = 0
        self._root_left = 0
        self._episode = Episode()
        self._outlived: dict[str, Sighting] = {}
        self._gathered: dict[str, Sighting] = {}
        self._open: list[Sighting] = []
        self._known: dict[bytes, tuple[Match, ...]] = {}
        self._proven: dict[bytes, tuple[tuple[str, ...], int]] = {}

    def feed(self, data: bytes) -> None:
        """Read on."""
        data = self._rest + data if self._rest else data
        start = 0
        while len(data) - start > LONGEST_LINE:
            stop = _cut(data, start, min(len(data), start + _BLOCK))
            self._block(data[start:stop])
            start = stop
        end = max(data.rfind(b"\n", start), data.rfind(b"\r", start)) + 1
        if end > start:
            self._block(data[start:end])
            start = end
        self._rest = data[start:]

    def finish(self) -> None:
        """The log's end: its last line may lack a newline."""
        if self._rest:
            self._block(self._rest + b"\n")
            self._rest = b""

    def seen(self) -> Seen:
        """What was found so far."""
        tail = b"".join(self._tail)[-TAIL_BYTES:]
        return Seen(
            self._episode,
            self._outlived,
            self._gathered,
            self._gate.progress_seen,
            tail,
            self._offset - len(tail),
        )

    def _block(self, block: bytes) -> None:
        """Whole lines, or a piece of a long one."""
        self._pieces = 0 if block[-1:] in _LINE_ENDS else self._pieces + 1
        if self._pieces <= _MOST_PIECES:
            self._read(block)
        self._offset += len(block)
        self._before = (self._before + block[-_BEFORE:])[-_BEFORE:]
        self._keep(block[-TAIL_BYTES:])

    def _keep(self, end: bytes) -> None:
        """The last pieces, as many as hold a tail."""
        self._tail.append(end)
        self._tail_bytes += len(end)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def _read(self, block: bytes) -> None:
        raw = block
        if b"\x1b" in block:
            block = ANSI.sub(b"", block)
        shapes = shapes_of(block)
        if shapes[-1] == b"":
            shapes.pop()
        kinds = set(shapes)
        self._gate.learn(kinds)
        if self._root_left or not self._gate.hot.isdisjoint(kinds):
            self._lines(raw, shapes)
        elif self._open:
            self._progress(shapes)
        self._gate.trim()

    def _lines(self, raw: bytes, shapes: list[bytes]) -> None:
        """A block that holds lines to be read."""
        kinds = self._gate.kinds
        lines: list[bytes] | None = None
        place = index = 0
        for number, shape in enumerate(shapes):
            kind = kinds[shape]
            if not kind.read and not self._root_left:
                if kind.progress and self._open:
                    self._count(kind)
                continue
            names, times = self._proven.get(shape, ((), 0))
            if times >= _PROVEN and not self._root_left:
                self._again(names)
                continue
            if lines is None:
                lines = raw.replace(b"\r", b"\n").split(b"\n")
            while index < number:
                place += len(lines[index]) + 1
                index += 1
            self._line(Line(raw, place, lines[number]), shape, kind)

    def _line(self, line: Line, shape: bytes, kind: Kind) -> None:
        text = line.text
        if self._root_left:
            self._root(line, text)
        found = self._known.get(line.raw)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[line.raw] = tuple(matches(text, kind.candidates))
        for match in found:
            self._sight(match.signature, dict(match.slots), line, match.near)
        if found and all(one.signature.gathered for one in found):
            names, times = self._proven.get(shape, ((), 0))
            same = tuple(one.signature.name for one in found)
            self._proven[shape] = (same, times + 1 if same == names else 1)
            if len(self._proven) > _MOST_PROVEN:
                self._proven.clear()
        elif kind.candidates:
            self._proven.pop(shape, None)
        if kind.marks:
            self._mark(text)
        if kind.progress and not found and self._open:
            self._count(kind)

    def _sight(self, signature: Signature, slots: Slots, line: Line, near: bytes) -> None:
        book = self._gathered
        if not signature.gathered:
            self._turn_page()
            book = self._episode.sightings
        sighting = book.get(signature.name)
        if sighting is None:
            offset, context = self._offset + line.place, line.context(self._before)
            sighting = Sighting(signature, offset, near, slots, context, count=0)
            book[signature.name] = sighting
        if signature.gathered and slots:
            sighting.slots = {**sighting.slots, **slots}
        self._once_more(sighting)
        rank = rank_of(line.text)
        if rank is None and "rank" in slots:
            rank = int(slots["rank"])
        if rank is not None and len(sighting.ranks) < _MOST_RANKS:
            sighting.ranks.add(rank)

    def _again(self, names: tuple[str, ...]) -> None:
        for name in names:
            self._once_more(self._gathered[name])

    def _once_more(self, sighting: Sighting) -> None:
        sighting.count += 1
        sighting.quiet = 0
        sighting.retried = False
        if all(one is not sighting for one in self._open):
            self._open.append(sighting)

    def _turn_page(self) -> None:
        """Training went on since the last failure: that one was outlived."""
        episode = self._episode
        if not episode.sightings or not outlived(episode):
            return
        for sighting in episode.sightings.values():
            if episode.died:
                self._outlived.setdefault(sighting.code, sighting)
        self._open = [one for one in self._open if one.signature.gathered]
        self._episode = Episode()

    def _mark(self, text: str) -> None:
        if _ROOT.search(text):
            self._root_left = _ROOT_LINES
        if _DIED.search(text) and self._episode.sightings and not outlived(self._episode):
            self._episode.died = True
        if _RETRIES.search(text):
            for sighting in self._open:
                if sighting.signature.retryable and not sighting.quiet:
                    sighting.retried = True

    def _root(self, line: Line, text: str) -> None:
        """One of the lines below torchrun's `Root Cause (first observed failure)`."""
        self._root_left -= 1
        rank, code = _ROOT_RANK.search(text), _ROOT_EXIT.search(text)
        if rank:
            self._episode.root_rank = int(rank[1])
        if code:
            signature = ROOT_EXITS.get(int(code[1]))
            known = self._episode.root_rank
            root: Slots = {} if known is None else {"rank": known}
            if signature is not None:
                self._sight(signature, root, line, text.encode()[:_KEPT_LINE])
            self._episode.root_exit = int(code[1])
            self._episode.died = True

    def _progress(self, shapes: list[bytes]) -> None:
        kinds = self._gate.kinds
        for shape in shapes:
            kind = kinds[shape]
            if kind.progress:
                self._count(kind)
                if not self._open:
                    return

    def _count(self, kind: Kind) -> None:
        settled = False
        for sighting in self._open:
            if kind.loss or not sighting.signature.gathered:
                sighting.quiet += 1
                settled = settled or sighting.settled
        if settled:
            self._open = [one for one in self._open if not one.settled]


def matches(text: str, candidates: Iterable[Signature]) -> Iterator[Match]:
    """Which of `candidates` the line says."""
    for signature in candidates:
        match = signature.pattern.search(text)
        if match is None or (signature.unless and signature.unless.search(text)):
            continue
        if credible(text, match.start(), match.end(), signature.head):
            near = text[max(0, match.start() - 300) : match.end() + 1_200].encode()
            yield Match(signature, slots_of(match.groupdict()), near[:_KEPT_LINE])


def outlived(episode: Episode) -> bool:
    """Whether training went on after everything that was seen."""
    return all(one.settled for one in episode.sightings.values())


def _cut(data: bytes, start: int, stop: int) -> int:
    """Where the block that begins at `start` ends: after the last line's end before `stop`.

    A line that is longer than `LONGEST_LINE` is cut into pieces of that size, counted from its
    start, however the bytes came.
    """
    while True:
        end = max(data.rfind(b"\n", start, stop), data.rfind(b"\r", start, stop)) + 1
        if end <= start:
            return start + LONGEST_LINE
        long = _first_long(data, start, end)
        if long is None:
            return end
        if long > start:
            return long
        return start + LONGEST_LINE


def _first_long(data: bytes, start: int, end: int) -> int | None:
    """Where the first line longer than `LONGEST_LINE` begins in data[start:end], if any."""
    position = start
    while end - position > LONGEST_LINE:
        stop = position + LONGEST_LINE + 1
        found = max(data.rfind(b"\n", position, stop), data.rfind(b"\r", position, stop))
        if found < 0:
            return position
        position = found + 1
    return None
