"""Sorts the lines of a block by a table of them, where few shapes make up most of its lines.

A library for arrays compares all lines with a shape, and converts all numbers in one place of them,
at once. The runtime has none: who reads long logs brings it along.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from trainer_runtime.core.diagnosis.parse.rows import Block
from trainer_runtime.core.diagnosis.parse.sorted_lines import (
    Handling,
    Sorted,
    by_handling,
)
from trainer_runtime.core.diagnosis.parse.template import Template
from trainer_runtime.core.diagnosis.parse.token_places import TokenPlace
from trainer_runtime.core.diagnosis.parse.tokens import Tokens

_FEW = 64  # a table is of use if a block has at most one shape for so many lines
_SHORTEST_PAUSE = 4  # blocks
_LONGEST_PAUSE = 64


class LineTable(Protocol):
    """The lines of a block; each may be set apart with all others of its shape."""

    @property
    def count(self) -> int:
        """Of all lines."""

    def set_apart(self, shape: bytes) -> int:
        """Set the lines of this shape apart. Returns how many there are."""

    def other(self) -> int | None:
        """The first line that is not set apart; None if all are."""

    def place(self, line: int) -> tuple[int, int]:
        """Where a line begins and ends in the block."""

    def lines(self, shapes: Collection[bytes]) -> Sequence[int]:
        """The lines of shapes that are set apart, in order."""

    def tokens(self, places: Mapping[bytes, Sequence[TokenPlace]]) -> Tokens:
        """The tokens of the lines of some shapes, by where they are in lines of each."""


# Makes a table of whole lines and of the same text with every digit as 0.
Tabulate = Callable[[bytes, bytes], LineTable]
# How a line is handled, its shape, and how many lines have it.
HandlingOf = Callable[[bytes, bytes, int], Handling]


class TableSorter:
    """Sorts blocks by the shapes of the one before, which mostly come again."""

    def __init__(self, tabulate: Tabulate, handling_of: HandlingOf) -> None:
        self._tabulate = tabulate
        self._handling_of = handling_of
        self._shapes: list[bytes] = []  # of the block before; none while it is of no use
        self._places: dict[tuple[Template, bytes], list[TokenPlace]] = {}  # in its lines
        self._pause = _SHORTEST_PAUSE
        self._paused = 0

    def prepare(self, shapes: Sequence[bytes]) -> bool:
        """Prepare for a block like the last one, whose lines have these shapes. Returns whether it
        will probably be sorted."""
        if self._paused:
            self._paused -= 1
            return False
        distinct = set(shapes)
        if len(distinct) * _FEW > len(shapes):
            self._give_up()
            return False
        self._shapes = list(distinct)
        return True

    def sort(self, block: Block, zeros: bytes) -> Sorted | None:
        """The lines of a block whose data, every digit as 0, is `zeros`; None where they have too
        many shapes."""
        if not self._shapes:
            return None
        table = self._tabulate(block.data, zeros)
        times = {shape: found for shape in self._shapes if (found := table.set_apart(shape))}
        while (line := table.other()) is not None:
            if len(times) * _FEW >= table.count:
                self._give_up()
                return None
            begin, end = table.place(line)
            shape = zeros[begin:end]
            times[shape] = table.set_apart(shape)
            assert times[shape], "a line has its own shape"
        block.count = table.count
        handlings: dict[Handling, list[bytes]] = {}
        for shape, alike in times.items():
            begin, end = table.place(table.lines([shape])[0])
            handling = self._handling_of(block.data[begin:end], shape, alike)
            handlings.setdefault(handling, []).append(shape)
        self._pause = _SHORTEST_PAUSE
        self._shapes = list(times)
        return self._sorted(table, handlings)

    def _sorted(self, table: LineTable, handlings: Mapping[Handling, list[bytes]]) -> Sorted:
        found = by_handling({one: table.lines(shapes) for one, shapes in handlings.items()})
        known = self._places
        self._places = {
            (template, shape): known.get((template, shape)) or template.token_places(shape)
            for template in found.by_template
            for shape in handlings[template]
        }
        found.tokens = {
            template: table.tokens(
                {shape: self._places[template, shape] for shape in handlings[template]}
            )
            for template in found.by_template
        }
        return found

    def _give_up(self) -> None:
        self._shapes = []
        self._places = {}
        self._paused = self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
