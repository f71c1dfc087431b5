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
# Words of code and errors alone; the others of `_NO_METRICS` may name metrics among many.
_NO_PROGRESS = _NO_METRICS - frozenset(b"failed none true false host loading map".split())
_MANY_METRICS = 4
_BAR = re.compile(rb"(?:s it|it s)\b")
_OF_A_BAR = frozenset((b"it", b"s"))  # each text that `_BAR` matches has one
_OF_PROGRESS = _METRICS | _BESIDE_A_LOSS | _NO_METRICS | _OF_A_BAR
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
    report how one ended. `words` are all that decide about a shape.
    """

    def __init__(self, signatures: Sequence[Signature], markers: Sequence[str]) -> None:
        self.markers = [frozenset(group.encode().split(b"+")) for group in markers]
        self.groups: dict[bytes, list[tuple[frozenset[bytes], Signature]]] = {}
        for signature in signatures:
            for group in signature.keywords.split("|"):
                words = [word.encode() for word in group.split("+")]
                self.groups.setdefault(words[0], []).append((frozenset(words), signature))
        groups = [group for of_word in self.groups.values() for group, _ in of_word]
        self.words = frozenset().union(*groups, *self.markers, _OF_PROGRESS)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the words of a shape say of it. `progress` is None where only a bar shows it."""

    candidates: tuple[Signature, ...]
    marks: bool
    progress: bool | None


class ShapeIndex:
    """The kinds of shapes seen: the cache of everything that depends on a shape alone.

    `kinds` has all shapes of the last `learn`, `read_shapes` those of them whose lines have to be
    read. Addresses and checksums make many shapes of one line, so a shape is judged by the few of
    its words that decide, and each set of them once (`verdicts`).
    """

    def __init__(self, keywords: Keywords) -> None:
        self.kinds: dict[bytes, ShapeKind] = {}
        self.read_shapes: set[bytes] = set()
        self.progress_seen = False
        self._keywords = keywords
        self.verdicts: dict[frozenset[bytes], _Verdict] = {}
        self._long: list[bytes] = []

    def learn(self, shapes: set[bytes]) -> None:
        """Classify new shapes; others may be forgotten."""
        unknown = shapes.difference(self.kinds)
        if len(self.kinds) + len(unknown) > CACHED_SHAPES:
            self.kinds.clear()
            self.read_shapes.clear()
            self.verdicts.clear()
            self._long.clear()
            unknown = shapes
        for shape in unknown:
            self.kinds[shape] = kind = self._kind(shape)
            if kind.is_read:
                self.read_shapes.add(shape)
            if len(shape) > LONGEST_CACHED:
                self._long.append(shape)
            self.progress_seen = self.progress_seen or kind.progress

    def trim(self) -> None:
        """Forget shapes that are too long to keep."""
        if len(self.kinds) > CACHED_SHAPES // 2:
            for shape in self._long:
                del self.kinds[shape]
                self.read_shapes.discard(shape)
            self._long.clear()

    def _kind(self, shape: bytes) -> ShapeKind:
        listed = shape.split()
        words = self._keywords.words.intersection(listed)
        verdict = self.verdicts.get(words)
        if verdict is None:
            verdict = self.verdicts[words] = self._verdict(words)
        progress = _shows_progress(shape, listed, verdict.progress)
        candidates = verdict.candidates and _of_shape(verdict.candidates, shape)
        if candidates or verdict.marks:
            loss = progress and b"loss" in words
            return ShapeKind(candidates, verdict.marks, True, progress, loss)
        if not progress:
            return _PLAIN
        return _PROGRESS_WITH_LOSS if b"loss" in words else _PROGRESS

    def _verdict(self, words: frozenset[bytes]) -> _Verdict:
        groups = self._keywords.groups
        candidates = {
            signature.name: signature
            for word in sorted(words & groups.keys())
            for group, signature in groups[word]
            if group <= words
        }
        marks = any(group <= words for group in self._keywords.markers)
        return _Verdict(tuple(candidates.values()), marks, _progress_by_words(words))


def _of_shape(candidates: tuple[Signature, ...], shape: bytes) -> tuple[Signature, ...]:
    """The candidates that don't ask for another shape."""
    text = shape.decode("ascii")
    return tuple(
        signature
        for signature in candidates
        if signature.shape is None or re.search(signature.shape, text)
    )


def is_progress_line(line: bytes) -> bool:
    """Whether a line shows that training makes progress."""
    (shape, *_) = shapes_of(line)
    listed = shape.split()
    return _shows_progress(shape, listed, _progress_by_words(frozenset(listed)))


def is_progress_bar(line: bytes) -> bool:
    """Whether a line is a progress bar."""
    return _BAR.search(shapes_of(line)[0]) is not None


def _shows_progress(shape: bytes, listed: list[bytes], by_words: bool | None) -> bool:
    if len(listed) > _MAX_WORDS_OF_PROGRESS:
        return False
    return _BAR.search(shape) is not None if by_words is None else by_words


def _progress_by_words(words: frozenset[bytes]) -> bool | None:
    """Whether words show progress: two of a metrics line, none of code. None: a bar may."""
    metrics = words & _METRICS
    others = _NO_PROGRESS if b"loss" in metrics and len(metrics) >= _MANY_METRICS else _NO_METRICS
    if not others.isdisjoint(words):
        return False
    if len(metrics) > 1 or (b"loss" in metrics and not _BESIDE_A_LOSS.isdisjoint(words)):
        return True
    return False if _OF_A_BAR.isdisjoint(words) else None
