"""The cheap filter: which lines could be a failure at all, by their shape.

A log of millions of lines has few kinds of them. A line's *shape* is the line without digits, in
lower case, with every other character replaced by a space: one `translate` over a block gives all
shapes, and a set the different ones. Only a new shape is classified, by its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
# Digits, and all but ASCII: the blocks of progress bars would make many shapes of one.
_DELETED = b"0123456789+" + bytes(range(128, 256))

_METRICS = frozenset(
    b"loss lr step iter iteration epoch norm mfu tokens tok ms elapsed samples trl tflops it ppl "
    b"perplexity time sec".split()
)
# Beside a loss alone they show progress too.
_BESIDE_A_LOSS = frozenset(b"batch update round acc accuracy val valid eval learning".split())
_NO_METRICS = frozenset(
    b"file line error exception traceback def return self import raise warning failed none true "
    b"false args kwargs wandb print logger for enumerate exitcode host shards writing loading map "
    b"fetching downloading filter tokenizing generating".split()
)
_BAR = re.compile(rb"(?:s it|it s)\b")
_MAX_WORDS_OF_PROGRESS = 80
_PREDICTABLE = 100  # a shape whose lines so often matched alike isn't read any more


@dataclass(slots=True)
class ShapeKind:
    """What the lines of a shape may be.

    `candidates` are the signatures that they may match; `marks`: they may report how a failure
    ended. `is_read`: either is so, and they are read one by one. `progress`: they are metrics or
    progress bars; `loss`: with a loss. The last `repeats` lines matched exactly the cumulative
    signatures named in `repeated`.
    """

    candidates: tuple[Signature, ...] = ()
    marks: bool = False
    is_read: bool = False
    progress: bool = False
    loss: bool = False
    repeated: tuple[str, ...] = ()
    repeats: int = 0

    @property
    def is_predictable(self) -> bool:
        """Whether further lines may be taken to match `repeated` without reading them."""
        return self.repeats >= _PREDICTABLE

    def record(self, matched: Iterable[Signature]) -> None:
        """One of its lines was read and matched these signatures."""
        signatures = tuple(matched)
        predictable = all(signature.cumulative for signature in signatures)
        names = tuple(signature.name for signature in signatures) if predictable else ()
        self.repeats = (self.repeats if names == self.repeated else 0) + bool(names)
        self.repeated = names


# Shapes that aren't read share these, since only read ones change.
_PLAIN = ShapeKind()
_PROGRESS = ShapeKind(progress=True)
_PROGRESS_WITH_LOSS = ShapeKind(progress=True, loss=True)


def shapes_of(block: bytes) -> list[bytes]:
    """The shape of every line of `block`; `\\r` ends a line too."""
    return block.translate(_TABLE, _DELETED).split(b"\n")


class Keywords:
    """Which words a line must have to be read, made once for a set of signatures.

    `markers` are groups of keywords (as in `Signature.keywords`) of lines that are not failures but
    report how one ended.
    """

    def __init__(self, signatures: Sequence[Signature], markers: Sequence[str]) -> None:
        self.markers = [frozenset(group.encode().split(b"+")) for group in markers]
        self.groups: dict[bytes, list[tuple[frozenset[bytes], Signature]]] = {}
        for signature in signatures:
            for group in signature.keywords.split("|"):
                words = [word.encode() for word in group.split("+")]
                self.groups.setdefault(words[0], []).append((frozenset(words), signature))
        marks = (group.split("+")[0].encode() for group in markers)
        self.triggers = frozenset(self.groups) | frozenset(marks)


class ShapeIndex:
    """The kinds of shapes seen: the cache of everything that depends on a shape alone.

    `kinds` has all shapes of the last `learn`, `read_shapes` those of them whose lines have to be
    read.
    """

    def __init__(self, keywords: Keywords) -> None:
        self.kinds: dict[bytes, ShapeKind] = {}
        self.read_shapes: set[bytes] = set()
        self.progress_seen = False
        self._keywords = keywords

    def learn(self, shapes: set[bytes]) -> None:
        """Classify new shapes; others may be forgotten."""
        unknown = shapes.difference(self.kinds)
        if not unknown:
            return
        if len(self.kinds) + len(unknown) > CACHED_SHAPES:
            self.kinds.clear()
            self.read_shapes.clear()
            unknown = shapes
        suspicious = not self._keywords.triggers.isdisjoint(b" ".join(unknown).split())
        for shape in unknown:
            self.kinds[shape] = kind = self._kind(shape, suspicious)
            if kind.is_read:
                self.read_shapes.add(shape)
            self.progress_seen = self.progress_seen or kind.progress

    def trim(self) -> None:
        """Forget shapes that are too long to keep."""
        if len(self.kinds) > CACHED_SHAPES // 2:
            for shape in [shape for shape in self.kinds if len(shape) > LONGEST_CACHED]:
                del self.kinds[shape]
                self.read_shapes.discard(shape)

    def _kind(self, shape: bytes, suspicious: bool) -> ShapeKind:
        listed = shape.split()
        words = frozenset(listed)
        progress = _is_progress(shape, listed, words)
        loss = progress and b"loss" in words
        if not suspicious or self._keywords.triggers.isdisjoint(words):
            if not progress:
                return _PLAIN
            return _PROGRESS_WITH_LOSS if loss else _PROGRESS
        candidates = self._candidates(shape, words)
        marks = any(group <= words for group in self._keywords.markers)
        return ShapeKind(
            candidates=candidates,
            marks=marks,
            is_read=marks or bool(candidates),
            progress=progress,
            loss=loss,
        )

    def _candidates(self, shape: bytes, words: frozenset[bytes]) -> tuple[Signature, ...]:
        candidates: dict[str, Signature] = {}
        text = ""
        for word in sorted(words & self._keywords.groups.keys()):
            for group, signature in self._keywords.groups[word]:
                if not group <= words:
                    continue
                text = text or shape.decode("ascii")
                if signature.shape is None or signature.shape.search(text):
                    candidates[signature.name] = signature
        return tuple(candidates.values())


def is_progress_line(line: bytes) -> bool:
    """Whether a line shows that training makes progress."""
    (shape, *_) = shapes_of(line)
    listed = shape.split()
    return _is_progress(shape, listed, frozenset(listed))


def is_progress_bar(line: bytes) -> bool:
    """Whether a line is a progress bar."""
    return _BAR.search(shapes_of(line)[0]) is not None


def _is_progress(shape: bytes, listed: list[bytes], words: frozenset[bytes]) -> bool:
    """Whether the line shows progress: two words of a metrics line or a progress bar, no code."""
    if not listed or len(listed) > _MAX_WORDS_OF_PROGRESS:
        return False
    metrics = words & _METRICS
    has_loss = b"loss" in metrics and not _BESIDE_A_LOSS.isdisjoint(words)
    if len(metrics) < 2 and not has_loss and not _BAR.search(shape):
        return False
    return _NO_METRICS.isdisjoint(words)
