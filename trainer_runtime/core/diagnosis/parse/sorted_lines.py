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
NOISE = "noise"  # with numbers
WORDS = "words"  # noise without numbers
NOISES = frozenset((NOISE, WORDS))
PROGRESS = "progress"  # a bar without metrics
Handling = Template | str
_RARE = 4  # lines are exceptions where fewer than one in this many is not as usual


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
    noise: int = 0  # lines
    noise_with_numbers: int | None = 0  # of them; None: not counted
    # All shapes that a template's lines have in the block, where that is known.
    shapes: Mapping[Template, Collection[bytes]] = field(default_factory=dict)


def sorted_lines(
    handlings: Sequence[Handling | None], lines: Sequence[int] | None = None
) -> Sorted:
    """The lines by handling: `handlings[k]` is that of line `lines[k]`, or of line k."""
    if not handlings:
        return Sorted({}, noise_with_numbers=None)
    count, usual = len(handlings), handlings[len(handlings) // 2]
    others = count - handlings.count(usual)
    if lines is None and others * _RARE < count:
        places = compress(range(count), map(is_not, handlings, repeat(usual)))
        return _sorted_as(usual, {k: handlings[k] for k in places} if others else {}, count)
    numbers = _numbers_by_handling(handlings)
    if lines is None:
        return by_handling(numbers)
    found = by_handling({one: [lines[k] for k in index] for one, index in numbers.items()})
    found.noise_with_numbers = None
    return found


def _numbers_by_handling(
    handlings: Sequence[Handling | None],
) -> Mapping[Handling | None, Sequence[int]]:
    if handlings.count(handlings[0]) == len(handlings):
        return {handlings[0]: range(len(handlings))}
    found: dict[Handling | None, list[int]] = defaultdict(list)
    for k, handling in enumerate(handlings):  # faster than a pass for each of two kinds
        found[handling].append(k)
    return found


def _sorted_as(
    usual: Handling | None, exceptions: Mapping[int, Handling | None], count: int
) -> Sorted:
    """The `count` lines of a block, all handled as `usual` but the exceptions, in order."""
    others: dict[Handling | None, list[int]] = defaultdict(list)
    for line, handling in exceptions.items():
        others[handling].append(line)
    found = by_handling({usual: _all_but(list(exceptions), count), **others})
    if isinstance(usual, Template) and len(exceptions) * _RARE < count:
        found.usual, found.exceptions = usual, exceptions
    return found


def by_handling(lines: Mapping[Handling | None, Sequence[int]]) -> Sorted:
    """The lines of each handling, by number."""
    noise = len(lines.get(NOISE, ()))
    return Sorted(
        {handling: i for handling, i in lines.items() if isinstance(handling, Template)},
        objects=lines.get(OBJECT, ()),
        singly=lines.get(SINGLY, ()),
        progress=lines.get(PROGRESS, ()),
        noise=noise + len(lines.get(WORDS, ())),
        noise_with_numbers=noise,
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
