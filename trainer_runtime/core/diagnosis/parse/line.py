"""Reads one line: its rank, the dialects in it, and their readings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter

from trainer_runtime.core.diagnosis.parse.dialects import (
    FALLBACK,
    HEADED,
    Dialect,
    huggingface,
    json_lines,
)
from trainer_runtime.core.diagnosis.parse.dialects.key_value import evaluates
from trainer_runtime.core.diagnosis.parse.names import held_out_key
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS
from trainer_runtime.core.diagnosis.parse.pattern import Pattern
from trainer_runtime.core.diagnosis.parse.points import Reading, StepFrom
from trainer_runtime.core.diagnosis.parse.tables import Table

LONGEST_LINE = 1 << 16
# A line with none of these is noise.
NEEDLES = (
    b"loss",
    b"Loss",
    b"step",
    b"Step",
    b"poch",
    b"iter",
    b"trl:",
    b"tel:",
    b"memory",
    b"heckpoint",
    b"Num ",
    b" train ",
    b" val ",
    b"grad_norm=",
    b"CrossEntropy",
    b"raining ",
    b"inished t",
    b"atch ",
    b"STEP: ",
    b'"kind"',
    *(needle for dialect in HEADED for needle in dialect.needles),
)
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# torchrun and its roles, DeepSpeed, accelerate, Lightning; srun --label; mpirun --tag-output.
_RANK = re.compile(
    rb"\s{0,4}(?:\[(?:rank|default|trainer|worker|Rank|RANK|RANK:|rank:) ?(\d{1,5})\]:?"
    rb"|(\d{1,4}): |\[\d+,(\d{1,5})\]<std(?:out|err)>:)"
)
_RANK_BEGINS = re.compile(rb"\[(?:rank|default)\d{1,5}\]:|\[Rank \d{1,5}\] \(after ")
_RANK_INSIDE = re.compile(rb"\[Rank (\d{1,5})\] ")
_SIGNS = [(number, sign) for number, dialect in enumerate(HEADED) for sign in dialect.signs]
_MOST_SHAPES, _LONG_SHAPE = 1024, 2048
_MOST_LONG_SHAPES, _LONGEST_SHAPE = 64, 1 << 15
_OF_OBJECTS = (json_lines.DIALECT, huggingface.DIALECT)  # whose names say it
_WORDS_BEFORE = 60  # bytes that say what is counted
_HEADS = [re.compile(dialect.head) for dialect in HEADED]
_Heads = tuple[tuple[int, int], ...]


class LineReader:
    """Reads lines by the patterns that were taught and the tables that were found, and all others
    by the known dialects."""

    def __init__(self, patterns: Sequence[Pattern | Table] = ()) -> None:
        self._patterns = patterns
        self._literals = tuple(pattern.literal for pattern in patterns)
        self.needles = (*NEEDLES, *self._literals)

    def read(self, line: bytes) -> list[Reading]:
        """The readings of a line without line ends; none unless it is a metric line."""
        if self._patterns and len(line) <= LONGEST_LINE:
            reading = self._taught(line)
            if reading is not None:
                return [reading]
        return read_line(line)

    def may_be_metrics(self, line: bytes) -> bool:
        """Whether the line is worth reading."""
        for literal in self._literals:
            if literal in line:
                return True
        return may_be_metrics(line)

    def _taught(self, line: bytes) -> Reading | None:
        text = _ANSI.sub(b"", line) if b"\x1b" in line else line
        for pattern in self._patterns:
            reading = pattern.read(text)
            if reading is not None:
                if reading.rank is None:
                    reading.rank = _without_rank(text)[0]
                return reading
        return None


def read_line(line: bytes) -> list[Reading]:
    """The readings of a line without line ends; none unless it is a metric line."""
    if len(line) > LONGEST_LINE or not may_be_metrics(line):
        return []
    if line.startswith(b'{"'):
        reading = json_lines.read(line)
        if reading is not None:
            return [reading]
    text = _ANSI.sub(b"", line) if b"\x1b" in line else line
    return [reading for part in _by_rank(text) for reading in _read_part(part)]


def may_be_metrics(line: bytes) -> bool:
    """Whether the line is worth reading: JSON objects always are, others if they have a needle."""
    for needle in NEEDLES:  # twice as fast as any() of a generator
        if needle in line:
            return True
    return line.startswith(b'{"')


def _by_rank(text: bytes) -> list[bytes]:
    """Split a line to which several ranks wrote at once."""
    starts = [match.start() for match in _RANK_BEGINS.finditer(text) if match.start()]
    if not starts:
        return [text]
    return [text[start:end] for start, end in zip([0, *starts], [*starts, len(text)], strict=True)]


def _read_part(text: bytes) -> list[Reading]:
    rank, text = _without_rank(text)
    readings = []
    for dialect_read, part in _parts(text):
        reading = dialect_read(part)
        if reading is None or not (
            reading.values or reading.events or reading.facts or reading.heads
        ):
            continue
        if reading.values and reading.step is None and reading.source is StepFrom.LINE:
            continue
        if reading.rank is None:
            reading.rank = rank
        readings.append(reading)
    return readings


def _without_rank(text: bytes) -> tuple[int, bytes]:
    match = _RANK.match(text)
    if match is None:
        inside = _RANK_INSIDE.search(text, 0, 200)
        return (int(inside[1]) if inside else 0), text
    rank = next(int(group) for group in match.groups() if group)
    if match[0].startswith(b"[R"):
        return rank, text  # DeepSpeed's and Megatron's lines begin with it
    return rank, text[match.end() :]


def _parts(text: bytes) -> Iterator[tuple[Callable[[bytes], Reading | None], bytes]]:
    """The dialects that read the line, each with its part, where lines are glued together."""
    found = [(start, HEADED[number]) for start, number in _heads_in(text)]
    if not found:
        yield FALLBACK.read, text.strip()
        return
    start, dialect = found[0]
    if dialect in _OF_OBJECTS and dialect.read(text[start:]) is None:
        # An object of something else behind it, or one that says neither step nor epoch.
        yield FALLBACK.read, text[:start].strip() or text.strip()
    for after, next_dialect in [*found[1:], (len(text), dialect)]:
        if dialect is json_lines.DIALECT and after < start + json_lines.end_of(text[start:]):
            continue  # within the object
        if not evaluates(text[max(0, start - _WORDS_BEFORE) : start]):
            yield dialect.read, text[start:after].rstrip()
        elif not dialect.counts:
            yield partial(_read_held_out, dialect), text[start:after].rstrip()
        start, dialect = after, next_dialect


def _read_held_out(dialect: Dialect, text: bytes) -> Reading | None:
    """A line behind words such as `[val]`."""
    reading = dialect.read(text)
    if reading is not None and dialect not in _OF_OBJECTS:
        reading.values = [(held_out_key(key), value) for key, value in reading.values]
    return reading


def _heads_in(text: bytes) -> _Heads:
    """Where lines begin in the text, and of which dialects. No sign and no head has a particular
    digit, so that this is the same for all texts of a shape."""
    shape = text.translate(ZEROS)
    if len(shape) <= _LONG_SHAPE:
        return _known_heads(shape)
    return _known_heads_of_long(shape) if len(shape) <= _LONGEST_SHAPE else _find_heads(shape)


def _find_heads(shape: bytes) -> _Heads:
    # Searched one by one, they take half the time of branches of one expression.
    signed = dict.fromkeys([number for number, sign in _SIGNS if sign in shape])
    following = {number: _HEADS[number].search(shape) for number in signed}
    heads = []
    while begun := [(*match.span(), number) for number, match in following.items() if match]:
        start, end, number = min(begun, key=itemgetter(0, 2))
        heads.append((start, number))
        following = {
            other: _HEADS[other].search(shape, end) if match.start() < end else match
            for other, match in following.items()
            if match
        }
    return tuple(heads)


# Lines come again with other numbers, and a configuration is printed by each rank.
_known_heads = lru_cache(_MOST_SHAPES)(_find_heads)
_known_heads_of_long = lru_cache(_MOST_LONG_SHAPES)(_find_heads)
