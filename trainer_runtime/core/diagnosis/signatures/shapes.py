"""The cheap part: which lines could be a failure at all.

A log of millions of lines has few kinds of them. A line's *shape* is what is left without digits
and with every other sign made a space: one `translate` over a block gives all of them, and a set
leaves the different ones. Only a shape that was never seen is looked at, by its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.diagnosis.signatures.signature import Signature

CACHED_SHAPES = 20_000
LONGEST_CACHED = 600


def _letters() -> bytes:
    table = bytearray(b" " * 256)
    for letter in b"abcdefghijklmnopqrstuvwxyz":
        table[letter] = table[letter - 32] = letter
    table[0x0A] = table[0x0D] = 0x0A
    return bytes(table)


_TABLE = _letters()
# Digits, and what is no ASCII: the blocks of progress bars would make many shapes of one.
_DELETED = b"0123456789+" + bytes(range(128, 256))

_METRICS = frozenset(
    b"loss lr step iter iteration epoch norm mfu tokens tok ms elapsed samples trl tflops it ppl "
    b"perplexity time sec".split()
)
_NO_METRICS = frozenset(
    b"file line error exception traceback def return self import raise warning failed none true "
    b"false args kwargs wandb print logger for enumerate exitcode host shards writing loading map "
    b"fetching downloading filter tokenizing generating".split()
)
_BAR = re.compile(rb"(?:s it|it s)\b")
_MOST_WORDS_OF_PROGRESS = 80


@dataclass(frozen=True, slots=True)
class Kind:
    """What a shape may be. `candidates` and `marks` make its lines be read one by one."""

    candidates: tuple[Signature, ...] = ()
    marks: bool = False
    progress: bool = False
    loss: bool = False

    @property
    def read(self) -> bool:
        return self.marks or bool(self.candidates)


_PLAIN = Kind()
_PROGRESS = Kind(progress=True)
_PROGRESS_WITH_LOSS = Kind(progress=True, loss=True)


def shapes_of(block: bytes) -> list[bytes]:
    """The shape of every line of `block`; `\\r` ends a line too."""
    return block.translate(_TABLE, _DELETED).split(b"\n")


class Gate:
    """Knows shapes by heart: `kinds` after `learn`, `hot` those whose lines have to be read.

    `marking` are groups of words (as a signature's gate has them) of lines that are no failure but
    say how one went on.
    """

    def __init__(self, signatures: Sequence[Signature], marking: Sequence[str]) -> None:
        self.kinds: dict[bytes, Kind] = {}
        self.hot: set[bytes] = set()
        self.progress_seen = False
        self._marking = [frozenset(group.encode().split(b"+")) for group in marking]
        self._groups: dict[bytes, list[tuple[frozenset[bytes], Signature]]] = {}
        for one in signatures:
            for group in one.gate.split("|"):
                words = [word.encode() for word in group.split("+")]
                self._groups.setdefault(words[0], []).append((frozenset(words), one))
        marks = (group.split("+")[0].encode() for group in marking)
        self._triggers = frozenset(self._groups) | frozenset(marks)

    def learn(self, shapes: set[bytes]) -> None:
        """Make sure that `kinds` knows all of `shapes`; it may forget others."""
        unknown = shapes.difference(self.kinds)
        if not unknown:
            return
        if len(self.kinds) + len(unknown) > CACHED_SHAPES:
            self.kinds.clear()
            self.hot.clear()
            unknown = shapes
        suspicious = not self._triggers.isdisjoint(b" ".join(unknown).split())
        for shape in unknown:
            self.kinds[shape] = kind = self._kind(shape, suspicious)
            if kind.read:
                self.hot.add(shape)
            self.progress_seen = self.progress_seen or kind.progress

    def trim(self) -> None:
        """Forget shapes that are too long to keep."""
        if len(self.kinds) > CACHED_SHAPES // 2:
            for shape in [shape for shape in self.kinds if len(shape) > LONGEST_CACHED]:
                del self.kinds[shape]
                self.hot.discard(shape)

    def _kind(self, shape: bytes, suspicious: bool) -> Kind:
        listed = shape.split()
        words = frozenset(listed)
        progress = _is_progress(shape, listed, words)
        loss = progress and b"loss" in words
        if not suspicious or self._triggers.isdisjoint(words):
            if not progress:
                return _PLAIN
            return _PROGRESS_WITH_LOSS if loss else _PROGRESS
        return Kind(
            candidates=self._candidates(shape, words),
            marks=any(group <= words for group in self._marking),
            progress=progress,
            loss=loss,
        )

    def _candidates(self, shape: bytes, words: frozenset[bytes]) -> tuple[Signature, ...]:
        found: dict[str, Signature] = {}
        text = ""
        for word in sorted(words & self._groups.keys()):
            for group, one in self._groups[word]:
                if not group <= words:
                    continue
                text = text or shape.decode("ascii")
                if one.shape is None or one.shape.search(text):
                    found[one.name] = one
        return tuple(found.values())


def tells_progress(line: bytes) -> bool:
    """Whether one line tells of training that goes on."""
    (shape, *_) = shapes_of(line)
    listed = shape.split()
    return _is_progress(shape, listed, frozenset(listed))


def is_bar(line: bytes) -> bool:
    """Whether one line is a progress bar's."""
    return _BAR.search(shapes_of(line)[0]) is not None


def _is_progress(shape: bytes, listed: list[bytes], words: frozenset[bytes]) -> bool:
    """Whether the line tells of training that goes on: two words of a metrics line, none of code.

    A progress bar's `s/it` is one as well.
    """
    if not listed or len(listed) > _MOST_WORDS_OF_PROGRESS:
        return False
    metrics = words & _METRICS
    if len(metrics) < 2 and not _BAR.search(shape):
        return False
    return _NO_METRICS.isdisjoint(words)
