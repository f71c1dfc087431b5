"""Which lines of a block are of which shape: the templates, and what is known to be noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.diagnosis.parse.line import NEEDLES, may_tell, read_line
from trainer_runtime.core.diagnosis.parse.number_tokens import ZEROS
from trainer_runtime.core.diagnosis.parse.points import Reading
from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.template_learning import learn

BAR = b"%|"
_LONGEST_SHAPED = 4096
_MOST_TEMPLATES = 64  # outlines; of each so many kinds:
_MOST_KIN = 8
# Learning costs as much as reading some thousand lines in bulk: what it saves pays for it.
_FIRST_CREDIT = 12.0
_MOST_CREDIT = 50.0
_CREDIT_OF_A_ROW = 1 / 2000
_LONGEST_NOISE = 400
_MOST_SHAPES = 20_000
_MOST_OUTLINES = 2000
_MOST_SHAPE_BYTES = 8 << 20
# Hexadecimal digits make noise look new on every line. A needle that is in a line is, without
# them, in the line without them.
_HEX = b"0123456789abcdef"
_NEEDLES_WITHOUT = tuple({needle.translate(None, _HEX) for needle in (*NEEDLES, BAR)})

_OTHER_DIGITS = (b"0" * 10, b"1" * 10, b"4725183694")
# All that may differ between lines of one template.
_FORM = b"0123456789.,+-eE #" + bytes(range(0x80, 0xC0)) + b"\xe2"

_OFTEN = 2  # lines of a form that is met so often are worth learning
_PRICE_OF_NOISE = 0.1
_FEW = 8  # shapes are few where one line in so many is of a new one

# What becomes of a line: read by a template, by its reader, or not at all.
SINGLY = "singly"
OBJECT = "object"  # JSON, of no fixed shape
NOISE = "noise"
Fate = Template | str


@dataclass(slots=True)
class Sorted:
    """Lines of a block, by number."""

    by_template: dict[Template, Sequence[int]]
    objects: list[int] = field(default_factory=list)
    singly: list[int] = field(default_factory=list)
    noise: list[int] | None = field(default_factory=list)  # None: not listed


class Shapes:
    """What was learnt of the lines' shapes: only ever a short cut, so it may be forgotten."""

    def __init__(self) -> None:
        self._fates: dict[bytes, Fate] = {}
        self._fates_bytes = 0
        self._templates: dict[bytes, list[Template]] = {}  # by outline
        self._outlines: dict[bytes, int] = {}
        self._credit = _FIRST_CREDIT
        self._noise: set[bytes] = set()
        self._dense = True  # many lines are metrics
        self._varied = False  # and of many shapes

    def sort(self, block: Block) -> Sorted:
        """The lines of a block by what becomes of them."""
        if not self._dense:
            candidates = self._candidates(block)
            self._dense = len(candidates) * 4 > len(block.lines)
            return _sorted(self._fates_of(block, candidates), candidates)
        if self._varied and (template := self._template_of_all(block)) is not None:
            return self._earned(Sorted({template: range(len(block.lines))}))
        shapes = block.data.translate(ZEROS).split(b"\n")
        shapes.pop()
        fates = list(map(self._fates.get, shapes))
        if None in fates:
            self._settle(block, shapes, fates)
        found = _sorted(fates)
        self._dense = len(found.noise or ()) * 4 < len(fates) * 3
        return self._earned(found)

    def _earned(self, found: Sorted) -> Sorted:
        rows = sum(map(len, found.by_template.values()))
        self._credit = min(_MOST_CREDIT, self._credit + rows * _CREDIT_OF_A_ROW)
        return found

    def _template_of_all(self, block: Block) -> Template | None:
        """The one template that reads every line, if there is one, though the shapes differ."""
        outlines = block.data.translate(None, _FORM).split(b"\n")
        outlines.pop()
        if outlines.count(outlines[0]) < len(outlines):
            return None
        for template in self._templates.get(outlines[0], ()):
            if len(template.lines.findall(block.data)) == len(outlines):
                return template
        return None

    def _settle(self, block: Block, shapes: list[bytes], fates: list[Fate | None]) -> None:
        """Fill in the fates of the lines whose shapes are new."""
        new = [i for i, fate in enumerate(fates) if fate is None]
        lines = block.lines
        kinds = {shapes[i]: i for i in new}
        self._varied = len(kinds) * _FEW > len(fates)
        if len(kinds) * _FEW < len(new):
            known = {shape: self._fate(lines[i], shape) for shape, i in kinds.items()}
            for i in new:
                fates[i] = known[shapes[i]]
            return
        for outline, alike in _by_outline(block, new).items():
            text = b"\n".join([lines[i] for i in alike])
            for template in self._templates.get(outline, ()):
                if len(template.lines.findall(text)) == len(alike):
                    for i in alike:
                        fates[i] = template
                    break
        learns = self._credit > 0
        for i in new:
            if fates[i] is None:
                is_object = not learns and lines[i].startswith(b'{"')
                fates[i] = OBJECT if is_object else self._fate(lines[i], shapes[i])

    def read(self, line: bytes) -> list[Reading]:
        """What a line by itself says. One that its shape's template did not fit gets another."""
        readings = read_line(line)
        shape = line.translate(ZEROS)
        if isinstance(self._fates.get(shape), Template):
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
            if len(self._noise) >= _MOST_SHAPES:
                self._noise.clear()
            if len(text) <= _LONGEST_NOISE:
                self._noise.add(text)
        return found

    def _fates_of(self, block: Block, candidates: Sequence[int]) -> list[Fate | None]:
        found: list[Fate | None] = []
        lines = block.lines
        for i in candidates:
            line = lines[i]
            shape = line.translate(ZEROS)
            found.append(self._fates.get(shape) or self._fate(line, shape))
        return found

    def _fate(self, line: bytes, shape: bytes) -> Fate:
        """What becomes of a line of an unknown shape."""
        known = self._fates.get(shape)
        if known is not None:
            return known
        if BAR not in line and not may_tell(line):
            return self._keep(shape, NOISE)
        if len(line) > _LONGEST_SHAPED:
            return SINGLY
        outline = line.translate(None, _FORM)
        for template in self._templates.get(outline, ()):
            if template.shape.fullmatch(shape):
                return self._keep(shape, template)
        if self._seen(outline) < _OFTEN or self._credit <= 0:
            return SINGLY
        readings = read_line(line)
        if len(readings) == 1:
            return self._keep(shape, self._learn(line, readings[0]) or SINGLY)
        self._credit -= _PRICE_OF_NOISE
        says_nothing = not any(read_line(other) for other in (line, *_like(line)))
        self._keep(shape, NOISE if says_nothing and BAR not in line else SINGLY)
        return SINGLY  # this once, so that it may be kept as a sample

    def _seen(self, outline: bytes) -> int:
        """How often lines of this outline came that no template reads: one of a kind isn't worth
        learning."""
        if len(self._outlines) >= _MOST_OUTLINES:
            self._outlines.clear()
        self._outlines[outline] = self._outlines.get(outline, 0) + 1
        return self._outlines[outline]

    def _learn(self, line: bytes, reading: Reading) -> Template | None:
        self._credit -= 1
        template = learn(line, reading, read_line)
        if template is not None:
            kin = self._templates.setdefault(line.translate(None, _FORM), [])
            kin.insert(0, template)
            del kin[_MOST_KIN:]
            if len(self._templates) > _MOST_TEMPLATES:
                self._templates.clear()
                self._fates.clear()
        return template

    def _keep(self, shape: bytes, fate: Fate) -> Fate:
        if len(shape) > _LONGEST_SHAPED:
            return fate
        self._fates_bytes += len(shape)
        if len(self._fates) >= _MOST_SHAPES or self._fates_bytes > _MOST_SHAPE_BYTES:
            self._fates.clear()
            self._fates_bytes = len(shape)
        self._fates[shape] = fate
        return fate


def _like(line: bytes) -> list[bytes]:
    """Lines of the same shape."""
    return [line.translate(bytes.maketrans(b"0123456789", digits)) for digits in _OTHER_DIGITS]


def _by_outline(block: Block, lines: Sequence[int]) -> dict[bytes, list[int]]:
    outlines = block.data.translate(None, _FORM).split(b"\n")
    found: dict[bytes, list[int]] = {}
    for i in lines:
        found.setdefault(outlines[i], []).append(i)
    return found


def _sorted(fates: Sequence[Fate | None], lines: Sequence[int] | None = None) -> Sorted:
    """`fates[k]` is that of line `lines[k]`, or of line k."""
    if not fates:
        return Sorted({}, noise=None)
    usual = fates[len(fates) // 2]
    places = list(range(len(fates)))
    by_fate: dict[Fate | None, list[int]] = {usual: places}
    if fates.count(usual) < len(fates):
        others = [k for k, fate in enumerate(fates) if fate is not usual]
        for k in others:
            by_fate.setdefault(fates[k], []).append(k)
        if len(others) * 4 < len(fates):
            for k in reversed(others):
                del places[k]
        else:
            places[:] = [k for k, fate in enumerate(fates) if fate is usual]
    if lines is not None:
        by_fate = {fate: [lines[k] for k in index] for fate, index in by_fate.items()}
    found = Sorted({}, noise=by_fate.get(NOISE, []) if lines is None else None)
    found.by_template = {fate: i for fate, i in by_fate.items() if isinstance(fate, Template)}
    found.objects, found.singly = by_fate.get(OBJECT, []), by_fate.get(SINGLY, [])
    return found
