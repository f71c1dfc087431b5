"""Sorts the lines of a block by shape: read by a template, singly, or not at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from trainer_runtime.core.diagnosis.parse.line import LineReader
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.reduced_noise import ReducedNoise
from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.sorted_lines import (
    NOISE,
    NOISES,
    OBJECT,
    PROGRESS,
    SINGLY,
    WORDS,
    Handling,
    Sorted,
    sorted_lines,
)
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.template_learning import (
    is_learnable,
    is_noise,
    learn,
    learn_noise,
)

BAR = b"%|"
_LONGEST_SHAPED = 4096
_MAX_TEMPLATES = 64  # outlines with templates
_MAX_TEMPLATES_PER_OUTLINE = 8
# Learning costs as much as reading 30 lines one by one or thousands in bulk. The lines that were
# read pay for it, so it never takes much more time than they did.
_FIRST_CREDIT = 12.0
_MAX_CREDIT = 50.0
_CREDIT_PER_ROW = 1 / 2000
_CREDIT_PER_OBJECT = 1 / 5000
_CREDIT_PER_LINE = 1 / 30  # read singly
_MAX_EVENTS = 256
_MAX_SHAPES = 20_000
_MAX_OUTLINES = 2000
_MAX_SHAPE_BYTES = 8 << 20

# Characters that may differ between lines of one template.
_FORM = b"0123456789.,+-eE #" + bytes(range(0x80, 0xC0)) + b"\xe2"

_OFTEN = 6  # an outline that occurs this often is worth learning
_OFTEN_NOISE = 16  # all of its forms, where nothing was found
_OBJECT_BLOCKS = 15  # after a block of objects of no fixed shape, until shapes are tried again
_OFTEN_OBJECTS = 64  # an object's, since objects are read fast without a template
_RARER = 8  # and again each time it occurred this many times as often
_ANOTHER = 2  # in another form, after this many times as many lines as before
_WORTH = 30  # short lines that take as long to read one by one as to learn one of them
_RESERVE = 6.0  # credit that is left for lines with metrics
_COST_OF_NOISE = 1.0
_COST_OF_SHAPE = 0.1
_VARIED = 4  # blocks of new shapes, until templates are tried on whole blocks
_SAMPLE = 64  # lines by which a log's first block is judged
_FEW = 8  # a block has few shapes if at most one line in this many has a new one


@dataclass(slots=True)
class _Outline:
    """How often an outline occurred that no template reads, and when to learn it."""

    due: int
    count: int = 0
    is_noise: bool = False  # nothing was found in one of its lines


class Shapes:
    """How each shape of line is handled. Only a shortcut: it may be forgotten at any time."""

    def __init__(self, reader: LineReader) -> None:
        self._reader = reader
        self._noise = ReducedNoise((*reader.needles, BAR))
        self._by_shape: dict[bytes, Handling] = {}
        self._by_shape_bytes = 0
        self._templates: dict[bytes, list[Template]] = {}  # by outline
        self._outlines: dict[bytes, _Outline] = {}
        self._credit = _FIRST_CREDIT
        # Of lines that report an event or a fact, which often occur again.
        self._events: dict[bytes, list[Reading]] = {}
        self._noise_shapes: dict[bytes, re.Pattern[bytes]] = {}  # by outline
        self._dense: bool | None = None  # many lines are metrics; None: not known yet
        self._varied = 0  # blocks in a row in which most shapes were new
        self._objects = 0  # blocks in which no line of a fixed shape is expected, only objects

    def sort(self, block: Block) -> Sorted:
        """The lines of a block by how they are handled."""
        if self._dense is None:
            self._dense = self._seems_dense(block)
        if not self._dense:
            return self._with_credit(self._sort_sparse(block))
        if self._varied >= _VARIED and (template := self._template_of_all(block)) is not None:
            return self._with_credit(Sorted({template: range(block.count)}, template))
        if self._objects and _are_objects(block):
            self._objects -= 1
            everything = range(block.count)
            return self._with_credit(Sorted({}, objects=everything, noise_with_numbers=None))
        shapes = block.data.translate(ZEROS).split(b"\n")
        shapes.pop()
        handlings = list(map(self._by_shape.get, shapes))
        if None in handlings:
            self._settle(block, shapes, handlings)
        found = sorted_lines(handlings)
        found.shapes = self._shapes_of_templates(shapes)
        return self._judged(block, found)

    def _judged(self, block: Block, found: Sorted) -> Sorted:
        """Judge by a block how the next one is sorted."""
        self._dense = found.noise * 4 < block.count * 3
        self._objects = _OBJECT_BLOCKS if len(found.objects) * 4 > block.count * 3 else 0
        return self._with_credit(found)

    def _shapes_of_templates(self, shapes: list[bytes]) -> dict[Template, list[bytes]]:
        """The shapes that each template's lines have; nothing where that is not known of all, or
        where they are many: those differ in how their numbers are written."""
        found: dict[Template, list[bytes]] = {}
        sample = shapes[:: len(shapes) // _SAMPLE + 1]
        if len(set(sample)) * 2 > _SAMPLE:
            return found
        distinct = set(shapes)
        if len(distinct) * _FEW > max(len(shapes), _SAMPLE * _FEW):
            return found
        for shape in distinct:
            handling = self._by_shape.get(shape)
            if handling is None:
                return {}
            if isinstance(handling, Template):
                found.setdefault(handling, []).append(shape)
        return found

    def _with_credit(self, found: Sorted) -> Sorted:
        earned = sum(map(len, found.by_template.values())) * _CREDIT_PER_ROW
        earned += len(found.objects) * _CREDIT_PER_OBJECT
        self._credit = min(_MAX_CREDIT, self._credit + earned)
        return found

    def _template_of_all(self, block: Block) -> Template | None:
        """The template that reads every line even though their shapes differ, if there is one."""
        outlines = block.data.translate(None, _FORM).split(b"\n")
        outlines.pop()
        if outlines.count(outlines[0]) < len(outlines):
            return None
        for template in self._templates.get(outlines[0], ()):
            if template.reads_all(block.data, len(outlines)):
                return template
        return None

    def _settle(self, block: Block, shapes: list[bytes], handlings: list[Handling | None]) -> None:
        """Fill in the handling of the lines whose shapes are new."""
        new = [i for i, handling in enumerate(handlings) if handling is None]
        lines = block.lines
        kinds: dict[bytes, int] = {}  # the first line of each
        for i in new:
            kinds.setdefault(shapes[i], i)
        self._varied = self._varied + 1 if len(kinds) * 2 > len(handlings) else 0
        if len(kinds) * _FEW < len(new):
            times = Counter(shapes[i] for i in new)
            known = {
                shape: self._handling_of(lines[i], shape, times[shape])
                for shape, i in kinds.items()
            }
            for i in new:
                shape = shapes[i]
                is_first = kinds[shape] == i
                handlings[i] = known[shape] if is_first else self._by_shape.get(shape, known[shape])
            return
        for outline, alike in _by_outline(block, new).items():
            text = b"\n".join([lines[i] for i in alike])
            for template in self._templates.get(outline, ()):
                if template.reads_all(text, len(alike)):
                    for i in alike:
                        handlings[i] = self._keep(shapes[i], template)
                    break
        for i in new:
            if handlings[i] is None:
                is_object = self._credit <= 0 and lines[i].startswith(b'{"')
                handlings[i] = OBJECT if is_object else self._handling_of(lines[i], shapes[i])

    def siblings(self, template: Template) -> list[Template]:
        """Templates of lines of the same shape, in which other numbers are fixed: of trainings with
        other totals."""
        alike = next((known for known in self._templates.values() if template in known), ())
        return [
            other
            for other in alike
            if other is not template and other.lines_pattern == template.lines_pattern
        ]

    def read(self, line: bytes) -> list[Reading]:
        """The readings of a single line. If the template of its shape failed, learn another."""
        readings = self._events.get(line)
        if readings is not None:
            return readings
        readings = self._reader.read(line)
        is_same = len(readings) == 1 and not is_learnable(readings[0])
        if is_same and len(self._events) < _MAX_EVENTS:
            self._events[line] = readings
        self._credit = min(_MAX_CREDIT, self._credit + _CREDIT_PER_LINE)
        shape = line.translate(ZEROS)
        if isinstance(self._by_shape.get(shape), Template) and len(readings) == 1:
            template = None
            seen = self._counted(line.translate(None, _FORM), 1)
            if seen.count >= seen.due and self._credit > 0:
                template = self._learn(line, readings[0], seen)
            if template is not None:
                self._keep(shape, template)
        return readings

    def _sort_sparse(self, block: Block) -> Sorted:
        """Sort lines of which few are metrics. What is left of the others is kept, without their
        hexadecimal digits, so that lines that differ in those alone are known again."""
        reduced = self._noise.reduced(block.data)
        new = self._noise.others(reduced)
        if not new:
            self._dense = False
            return Sorted({}, noise_with_numbers=None)
        lines = block.lines
        shapes = b"\n".join([lines[i] for i in new]).translate(ZEROS).split(b"\n")
        handlings = list(map(self._by_shape.get, shapes))
        are_noise = list(map(NOISES.__contains__, handlings))
        self._noise.remember([reduced[i] for i in compress(new, are_noise)])
        if None in handlings:
            handlings = [
                self._handling_in_sparse(lines[i], shape, reduced[i])
                for i, shape in zip(new, shapes, strict=True)
            ]
            are_noise = list(map(NOISES.__contains__, handlings))
        if True in are_noise:
            new = [i for i, is_one in zip(new, are_noise, strict=True) if not is_one]
            handlings = [handling for handling in handlings if handling not in NOISES]
        self._dense = len(handlings) * 4 > block.count
        return sorted_lines(handlings, new)

    def _handling_in_sparse(self, line: bytes, shape: bytes, reduced: bytes) -> Handling:
        known = self._by_shape.get(shape)
        if known is None and self._noise.is_noise(reduced):
            return NOISE
        return known or self._handling_of(line, shape)

    def _handling_of(self, line: bytes, shape: bytes, times: int = 1) -> Handling:
        """How lines of a shape are handled, of which there are `times`; classifies a new shape."""
        known = self._by_shape.get(shape)
        if known is not None:
            return known
        if BAR not in line and not self._reader.may_be_metrics(line):
            return self._keep(shape, _noise_of(shape))
        if len(line) > _LONGEST_SHAPED:
            return SINGLY
        outline = line.translate(None, _FORM)
        for template in self._templates.get(outline, ()):
            if template.shape.fullmatch(shape):
                return self._keep(shape, template)
        noise = self._noise_shapes.get(outline)
        if noise is not None and noise.fullmatch(shape):
            return self._keep(shape, PROGRESS if BAR in line else _noise_of(shape))
        seen = self._counted(outline, times)
        pays = self._credit > 0 or seen.count >= max(_WORTH, len(line) // 4)
        if pays and seen.count >= seen.due:
            return self._try(line, shape, seen)
        if seen.is_noise and self._credit > 0 and self._is_noise(line):
            return self._keep_noise(shape, line)
        return OBJECT if line.startswith(b'{"') else SINGLY

    def _try(self, line: bytes, shape: bytes, seen: _Outline) -> Handling:
        """Learn how lines like this are handled."""
        readings = self._reader.read(line)
        if len(readings) == 1:
            return self._keep(shape, self._learn(line, readings[0], seen) or SINGLY)
        seen.due = seen.count * _RARER
        if readings:
            return self._keep(shape, SINGLY)
        seen.is_noise = True
        if self._credit <= _RESERVE:
            return SINGLY
        if seen.count >= _OFTEN_NOISE:
            self._learn_noise(line, line.translate(None, _FORM))
        elif self._is_noise(line):
            self._keep_noise(shape, line)
        return SINGLY  # this once, so that it may be kept as a sample

    def _keep_noise(self, shape: bytes, line: bytes) -> Handling:
        """How this line is handled; others of its shape are not read."""
        if BAR in line:
            return self._keep(shape, PROGRESS)
        self._keep(shape, _noise_of(shape))
        return SINGLY  # this once, so that it may be kept as a sample

    def _counted(self, outline: bytes, times: int) -> _Outline:
        """Count lines of an outline that no template reads."""
        if len(self._outlines) >= _MAX_OUTLINES:
            self._outlines.clear()
        known = self._outlines.get(outline)
        if known is None:
            due = _OFTEN_OBJECTS if outline.startswith(b'{"') else _OFTEN
            known = self._outlines[outline] = _Outline(due)
        known.count += times
        return known

    def _is_noise(self, line: bytes) -> bool:
        """Whether nothing is found in any line of exactly this shape."""
        self._credit -= _COST_OF_SHAPE
        return is_noise(line, self._reader.read)

    def _learn(self, line: bytes, reading: Reading, seen: _Outline) -> Template | None:
        self._credit -= is_learnable(reading)
        template = learn(line, reading, self._reader.read)
        if template is None:
            seen.due = seen.count * _RARER
        else:
            seen.count, seen.due = 0, seen.due * _ANOTHER
            templates = self._templates.setdefault(line.translate(None, _FORM), [])
            templates.insert(0, template)
            matches = template.shape.fullmatch
            for shape, handling in self._by_shape.items():
                if handling is SINGLY and matches(shape):  # learning failed from other numbers
                    self._by_shape[shape] = template
            del templates[_MAX_TEMPLATES_PER_OUTLINE:]
            if len(self._templates) > _MAX_TEMPLATES:
                self._templates.clear()
                self._by_shape.clear()
        return template

    def _learn_noise(self, line: bytes, outline: bytes) -> None:
        self._credit -= _COST_OF_NOISE
        pattern = learn_noise(line, self._reader.read)
        if pattern is not None:
            if len(self._noise_shapes) >= _MAX_TEMPLATES:
                self._noise_shapes.clear()
            self._noise_shapes[outline] = pattern

    def _keep(self, shape: bytes, handling: Handling) -> Handling:
        if len(shape) > _LONGEST_SHAPED:
            return handling
        self._by_shape_bytes += len(shape)
        if len(self._by_shape) >= _MAX_SHAPES or self._by_shape_bytes > _MAX_SHAPE_BYTES:
            self._by_shape.clear()
            self._by_shape_bytes = len(shape)
        self._by_shape[shape] = handling
        return handling

    def _seems_dense(self, block: Block) -> bool:
        sample = block.lines[:: len(block.lines) // _SAMPLE + 1]
        worth = self._reader.may_be_metrics
        return sum(BAR in line or worth(line) for line in sample) * 4 > len(sample)


def _noise_of(shape: bytes) -> Handling:
    return NOISE if b"0" in shape else WORDS


def _are_objects(block: Block) -> bool:
    begins = block.data.count(b'\n{"') + block.data.startswith(b'{"')
    return begins == block.count


def _by_outline(block: Block, lines: Sequence[int]) -> dict[bytes, list[int]]:
    text = b"\n".join([block.lines[i] for i in lines])
    found: dict[bytes, list[int]] = {}
    for i, outline in zip(lines, text.translate(None, _FORM).split(b"\n"), strict=True):
        found.setdefault(outline, []).append(i)
    return found
