"""Recognises a block that consists of the same lines as the one before it.

Most blocks of a dense log do: lines of one shape, and a few of some other shapes. Comparing such a
block with the shape, so many times repeated, takes a tenth of the time of one lookup per line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.sorted_lines import Handling, Sorted, sorted_as
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.records import dataclass

_FEW = 16  # a block is expected to repeat if at most one line in this many is of another shape
_SAMPLE = 64  # lines that show in most blocks that none are expected
_MOST_OTHERS = 3  # shapes: each costs a search of the block


@dataclass(frozen=True, slots=True)
class ExpectedLines:
    """Lines of the shape `usual`, read by `template`, and between them some of the shapes `others`.
    Shapes with their line feeds."""

    usual: bytes
    template: Template
    others: Mapping[bytes, Handling]

    def sort(self, block: Block, zeros: bytes) -> Sorted | None:
        """The lines of a block whose data, every digit as 0, is `zeros`; None if it has others."""
        size, at, line = len(self.usual), 0, 0
        exceptions: dict[int, Handling] = {}
        for start, shape in sorted(self._places(zeros)):
            count, odd = divmod(start - at, size)
            if odd or zeros[at:start] != self.usual * count:
                return None
            line += count
            exceptions[line] = self.others[shape]
            at = start + len(shape)
            block.place(line, start, at - 1)
            line += 1
        count, odd = divmod(len(zeros) - at, size)
        if odd or zeros[at:] != self.usual * count or len(exceptions) * 4 > line + count:
            return None
        block.count = line + count
        found = sorted_as(self.template, exceptions, block.count)
        found.shapes = {self.template: [self.usual]} | {
            other: [shape] for shape, other in self.others.items() if isinstance(other, Template)
        }
        return found

    def _places(self, zeros: bytes) -> Iterator[tuple[int, bytes]]:
        """Where lines of the other shapes begin."""
        for shape in self.others:
            if zeros.startswith(shape):
                yield 0, shape
            needle = b"\n" + shape
            at = zeros.find(needle)
            while at >= 0:
                yield at + 1, shape
                at = zeros.find(needle, at + len(shape))


def expected_lines(
    shapes: Sequence[bytes], handlings: Sequence[Handling | None]
) -> ExpectedLines | None:
    """What the block after one of these lines is expected to consist of; None if nothing much."""
    middle = len(shapes) // 2
    usual, template = shapes[middle], handlings[middle]
    if len(set(shapes[:: len(shapes) // _SAMPLE + 1])) > _MOST_OTHERS + 1:
        return None
    if not isinstance(template, Template) or shapes.count(usual) * _FEW < len(shapes) * (_FEW - 1):
        return None
    handling_of = dict(zip(shapes, handlings, strict=True))
    del handling_of[usual]
    others = {shape + b"\n": handling for shape, handling in handling_of.items() if handling}
    if len(others) < len(handling_of) or len(others) > _MOST_OTHERS or template in others.values():
        return None
    return ExpectedLines(usual + b"\n", template, others)
