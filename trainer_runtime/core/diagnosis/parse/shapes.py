"""Sorts the lines of a block by shape: read by a template, singly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.parse.line import NEEDLES, may_be_metrics, read_line
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.template_learning import learn

BAR = b"%|"
_LONGEST_SHAPED = 4096
_MAX_TEMPLATES = 64  # outlines with templates
_MAX_TEMPLATES_PER_OUTLINE = 8
# Learning costs as much as reading thousands of lines in bulk, so rows read in bulk pay for it.
_FIRST_CREDIT = 12.0
_MAX_CREDIT = 50.0
_CREDIT_PER_ROW = 1 / 2000
_LONGEST_NOISE = 400
_MAX_SHAPES = 20_000
_MAX_OUTLINES = 2000
_MAX_SHAPE_BYTES = 8 << 20
# Hexadecimal digits make each line of noise different. Removing them from a line and from a needle
# keeps the needle in the line.
_HEX = b"0123456789abcdef"
_NEEDLES_WITHOUT = tuple({needle.translate(None, _HEX) for needle in (*NEEDLES, BAR)})

_OTHER_DIGITS = (b"0" * 10, b"1" * 10, b"4725183694")
# Characters that may differ between lines of one template.
_FORM = b"0123456789.,+-eE #" + bytes(range(0x80, 0xC0)) + b"\xe2"

_OFTEN = 2  # an outline that occurs this often is worth learning
_COST_OF_NOISE = 0.1
_FEW = 8  # a block has few shapes if at most one line in this many has a new one

# How lines of a shape are handled: read by a template, or one of these.
SINGLY = "singly"
OBJECT = "object"  # JSON, of no fixed shape
NOISE = "noise"
Handling = Template | str


@dataclass(slots=True)
class Sorted:
    """Lines of a block, by number."""

    by_template: dict[Template, Sequence[int]]
    objects: list[int] = field(default_factory=list)
    singly: list[int] = field(default_factory=list)
    noise: list[int] | None = field(default_factory=list)  # None: not listed


class Shapes:
    """How each shape of line is handled. Only a shortcut: it may be forgotten at any time."""

    def __init__(self) -> None:
        self._by_shape: dict[bytes, Handling] = {}
        self._by_shape_bytes = 0
        self._templates: dict[bytes, list[Template]] = {}  # by outline
        self._outlines: dict[bytes, int] = {}
        self._credit = _FIRST_CREDIT
        self._noise: set[bytes] = set()
        self._dense = True  # many lines are metrics
        self._varied = False  # and of many shapes

    def sort(self, block: Block) -> Sorted:
        """The lines of a block by how they are handled."""
        if not self._dense:
            candidates = self._candidates(block)
            self._dense = len(candidates) * 4 > len(block.lines)
            return _sorted(self._handlings_of(block, candidates), candidates)
        if self._varied and (template := self._template_of_all(block)) is not None:
            return self._with_credit(Sorted({template: range(len(block.lines))}))
        shapes = block.data.translate(ZEROS).split(b"\n")
        shapes.pop()
        handlings = list(map(self._by_shape.get, shapes))
        if None in handlings:
            self._settle(block, shapes, handlings)
        found = _sorted(handlings)
        self._dense = len(found.noise or ()) * 4 < len(handlings) * 3
        return self._with_credit(found)

    def _with_credit(self, found: Sorted) -> Sorted:
        rows = sum(map(len, found.by_template.values()))
        self._credit = min(_MAX_CREDIT, self._credit + rows * _CREDIT_PER_ROW)
        return found

    def _template_of_all(self, block: Block) -> Template | None:
        """The template that reads every line even though their shapes differ, if there is one."""
        outlines = block.data.translate(None, _FORM).split(b"\n")
        outlines.pop()
        if outlines.count(outlines[0]) < len(outlines):
            return None
        for template in self._templates.get(outlines[0], ()):
            if len(template.lines.findall(block.data)) == len(outlines):
                return template
        return None

    def _settle(self, block: Block, shapes: list[bytes], handlings: list[Handling | None]) -> None:
        """Fill in the handling of the lines whose shapes are new."""
        new = [i for i, handling in enumerate(handlings) if handling is None]
        lines = block.lines
        kinds = {shapes[i]: i for i in new}
        self._varied = len(kinds) * _FEW > len(handlings)
        if len(kinds) * _FEW < len(new):
            known = {shape: self._handling_of(lines[i], shape) for shape, i in kinds.items()}
            for i in new:
                handlings[i] = known[shapes[i]]
            return
        for outline, alike in _by_outline(block, new).items():
            text = b"\n".join([lines[i] for i in alike])
            for template in self._templates.get(outline, ()):
                if len(template.lines.findall(text)) == len(alike):
                    for i in alike:
                        handlings[i] = template
                    break
        learns = self._credit > 0
        for i in new:
            if handlings[i] is None:
                is_object = not learns and lines[i].startswith(b'{"')
                handlings[i] = OBJECT if is_object else self._handling_of(lines[i], shapes[i])

    def read(self, line: bytes) -> list[Reading]:
        """The readings of a single line. If the template of its shape failed, learn another."""
        readings = read_line(line)
        shape = line.translate(ZEROS)
        if isinstance(self._by_shape.get(shape), Template):
            learns = len(readings) == 1 and self._credit > 0
            template = self._learn(line, readings[0]) if learns else None
            self._keep(shape, template or SINGLY)
        return readings

    def _candidates(self, block: Block) -> Sequence[int]:
        reduced = block.data.translate(None, _HEX).split(b"\n")
        reduced.pop()
        if self._noise.issuperset(reduced):
            return ()
        found: list[int] = []
        noise = self._noise
        for i, text in [(i, text) for i, text in enumerate(reduced) if text not in noise]:
            if text in noise:
                continue
            if text.startswith(b'{"') or any(needle in text for needle in _NEEDLES_WITHOUT):
                found.append(i)
                continue
            if len(self._noise) >= _MAX_SHAPES:
                self._noise.clear()
            if len(text) <= _LONGEST_NOISE:
                self._noise.add(text)
        return found

    def _handlings_of(self, block: Block, candidates: Sequence[int]) -> list[Handling | None]:
        found: list[Handling | None] = []
        lines = block.lines
        for i in candidates:
            line = lines[i]
            shape = line.translate(ZEROS)
            found.append(self._by_shape.get(shape) or self._handling_of(line, shape))
        return found

    def _handling_of(self, line: bytes, shape: bytes) -> Handling:
        """How a line is handled; classifies its shape if it is new."""
        known = self._by_shape.get(shape)
        if known is not None:
            return known
        if BAR not in line and not may_be_metrics(line):
            return self._keep(shape, NOISE)
        if len(line) > _LONGEST_SHAPED:
            return SINGLY
        outline = line.translate(None, _FORM)
        for template in self._templates.get(outline, ()):
            if template.shape.fullmatch(shape):
                return self._keep(shape, template)
        if self._count(outline) < _OFTEN or self._credit <= 0:
            return SINGLY
        readings = read_line(line)
        if len(readings) == 1:
            return self._keep(shape, self._learn(line, readings[0]) or SINGLY)
        self._credit -= _COST_OF_NOISE
        is_noise = not any(read_line(other) for other in (line, *_same_shape(line)))
        self._keep(shape, NOISE if is_noise and BAR not in line else SINGLY)
        return SINGLY  # this once, so that it may be kept as a sample

    def _count(self, outline: bytes) -> int:
        """Count an outline that no template reads: learning a single line doesn't pay."""
        if len(self._outlines) >= _MAX_OUTLINES:
            self._outlines.clear()
        self._outlines[outline] = self._outlines.get(outline, 0) + 1
        return self._outlines[outline]

    def _learn(self, line: bytes, reading: Reading) -> Template | None:
        self._credit -= 1
        template = learn(line, reading, read_line)
        if template is not None:
            templates = self._templates.setdefault(line.translate(None, _FORM), [])
            templates.insert(0, template)
            del templates[_MAX_TEMPLATES_PER_OUTLINE:]
            if len(self._templates) > _MAX_TEMPLATES:
                self._templates.clear()
                self._by_shape.clear()
        return template

    def _keep(self, shape: bytes, handling: Handling) -> Handling:
        if len(shape) > _LONGEST_SHAPED:
            return handling
        self._by_shape_bytes += len(shape)
        if len(self._by_shape) >= _MAX_SHAPES or self._by_shape_bytes > _MAX_SHAPE_BYTES:
            self._by_shape.clear()
            self._by_shape_bytes = len(shape)
        self._by_shape[shape] = handling
        return handling


def _same_shape(line: bytes) -> list[bytes]:
    """Lines of the same shape."""
    return [line.translate(bytes.maketrans(b"0123456789", digits)) for digits in _OTHER_DIGITS]


def _by_outline(block: Block, lines: Sequence[int]) -> dict[bytes, list[int]]:
    outlines = block.data.translate(None, _FORM).split(b"\n")
    found: dict[bytes, list[int]] = {}
    for i in lines:
        found.setdefault(outlines[i], []).append(i)
    return found


def _sorted(handlings: Sequence[Handling | None], lines: Sequence[int] | None = None) -> Sorted:
    """The lines by handling: `handlings[k]` is that of line `lines[k]`, or of line k."""
    if not handlings:
        return Sorted({}, noise=None)
    usual = handlings[len(handlings) // 2]
    places = list(range(len(handlings)))
    by_handling: dict[Handling | None, list[int]] = {usual: places}
    if handlings.count(usual) < len(handlings):
        others = [k for k, handling in enumerate(handlings) if handling is not usual]
        for k in others:
            by_handling.setdefault(handlings[k], []).append(k)
        if len(others) * 4 < len(handlings):
            for k in reversed(others):
                del places[k]
        else:
            places[:] = [k for k, handling in enumerate(handlings) if handling is usual]
    if lines is not None:
        by_handling = {
            handling: [lines[k] for k in index] for handling, index in by_handling.items()
        }
    found = Sorted({}, noise=by_handling.get(NOISE, []) if lines is None else None)
    found.by_template = {
        handling: i for handling, i in by_handling.items() if isinstance(handling, Template)
    }
    found.objects, found.singly = by_handling.get(OBJECT, []), by_handling.get(SINGLY, [])
    return found
