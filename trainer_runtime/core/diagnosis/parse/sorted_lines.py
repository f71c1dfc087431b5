"""The lines of a block by how they are handled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from itertools import compress, repeat
from operator import is_not

from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.records import dataclass

# How lines of a shape are handled: read by a template, or one of these.
SINGLY = "singly"
OBJECT = "object"  # JSON, of no fixed shape
NOISE = "noise"
PROGRESS = "progress"  # a bar without metrics
Handling = Template | str


@dataclass(slots=True)
class Sorted:
    """Lines of a block, by number."""

    by_template: dict[Template, Sequence[int]]
    usual: Template | None = None  # that reads most lines of the block
    # The lines that it does not read, in order, and how they are handled.
    exceptions: Mapping[int, Handling | None] = field(default_factory=dict)
    objects: Sequence[int] = ()
    singly: Sequence[int] = ()
    progress: Sequence[int] = ()
    noise: Sequence[int] | None = ()  # None: not listed
    # All shapes that a template's lines have in the block, where that is known.
    shapes: Mapping[Template, Collection[bytes]] = field(default_factory=dict)


def sorted_lines(
    handlings: Sequence[Handling | None], lines: Sequence[int] | None = None
) -> Sorted:
    """The lines by handling: `handlings[k]` is that of line `lines[k]`, or of line k."""
    if not handlings:
        return Sorted({}, noise=None)
    count, usual = len(handlings), handlings[len(handlings) // 2]
    exceptions: dict[int, Handling | None] = {}
    if handlings.count(usual) < count:
        others = compress(range(count), map(is_not, handlings, repeat(usual)))
        exceptions = {k: handlings[k] for k in others}
    if lines is None:
        return sorted_as(usual, exceptions, count)
    by_handling = {
        handling: [lines[k] for k in index]
        for handling, index in _by_handling(usual, exceptions, count).items()
    }
    found = _sorted(by_handling)
    found.noise = None
    return found


def sorted_as(
    usual: Handling | None, exceptions: Mapping[int, Handling | None], count: int
) -> Sorted:
    """The `count` lines of a block, all handled as `usual` but the exceptions, in order."""
    found = _sorted(_by_handling(usual, exceptions, count))
    if isinstance(usual, Template) and len(exceptions) * 4 < count:
        found.usual, found.exceptions = usual, exceptions
    return found


def _by_handling(
    usual: Handling | None, exceptions: Mapping[int, Handling | None], count: int
) -> dict[Handling | None, Sequence[int]]:
    others: dict[Handling | None, list[int]] = defaultdict(list)
    for line, handling in exceptions.items():
        others[handling].append(line)
    return {usual: _all_but(list(exceptions), count), **others}


def _sorted(lines: Mapping[Handling | None, Sequence[int]]) -> Sorted:
    return Sorted(
        {handling: i for handling, i in lines.items() if isinstance(handling, Template)},
        objects=lines.get(OBJECT, ()),
        singly=lines.get(SINGLY, ()),
        progress=lines.get(PROGRESS, ()),
        noise=lines.get(NOISE, ()),
    )


def _all_but(others: Sequence[int], count: int) -> Sequence[int]:
    """The numbers below `count` that are not in the ascending `others`."""
    if not others:
        return range(count)
    found: list[int] = []
    begin = 0
    for other in others:
        found += range(begin, other)
        begin = other + 1
    found += range(begin, count)
    return found
