"""Recognises steps that rise evenly, by their texts.

Most logs print every step, or every tenth. Comparing their texts with those that are expected takes
a quarter of the time of converting each, and what rises evenly needs no search for falls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

_FEWEST = 16
_MOST_BETWEEN = 100  # steps that are farther apart are converted one by one
_DIGITS = 15  # of which a float holds every number
_THOUSAND = 1000
_ENDS = [b"%03d " % number for number in range(_THOUSAND)]
_SMALL = [b"%d " % number for number in range(_THOUSAND)]


class EvenSteps(Sequence[float]):
    """Steps that rise evenly, as floats; `numbers` are the same."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[float]:
        return map(float, self.numbers)

    @overload
    def __getitem__(self, at: int) -> float: ...

    @overload
    def __getitem__(self, at: slice) -> EvenSteps: ...

    def __getitem__(self, at: int | slice) -> float | EvenSteps:
        found = self.numbers[at]
        return EvenSteps(found) if isinstance(found, range) else float(found)


def even_steps(texts: Sequence[bytes]) -> EvenSteps | None:
    """The steps that these texts are, if they are whole numbers that rise evenly."""
    count = len(texts)
    if count < _FEWEST or not all(map(_is_whole, (texts[0], texts[1], texts[-1]))):
        return None
    first, last = int(texts[0]), int(texts[-1])
    between = int(texts[1]) - first
    if not 0 < between <= _MOST_BETWEEN or first + between * (count - 1) != last:
        return None
    numbers = range(first, last + 1, between)
    return EvenSteps(numbers) if b" ".join([*texts, b""]) == _written(numbers) else None


def _is_whole(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS


def _written(numbers: range) -> bytes:
    """The numbers as text, each with a space behind it; thousand by thousand."""
    parts = []
    at, end, between = numbers.start, numbers.stop, numbers.step
    while at < end:
        thousands, first = divmod(at, _THOUSAND)
        until = min(_THOUSAND, end - thousands * _THOUSAND)
        ends = _ENDS if thousands else _SMALL
        chosen = ends[first:until:between]
        parts.append((b"%d" % thousands if thousands else b"").join((b"", *chosen)))
        at += len(chosen) * between
    return b"".join(parts)
