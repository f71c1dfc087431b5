"""The lines of a block as arrays: all of one shape are compared, and all numbers in one place of
them converted, at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from trainer_runtime.core.diagnosis.parse.conversion import Conversion
from trainer_runtime.core.diagnosis.parse.even_steps import EvenSteps
from trainer_runtime.core.diagnosis.parse.token_places import TokenPlace
from trainer_runtime.core.diagnosis.parse.tokens import Tokens
from trainer_runtime.core.records import dataclass

_NEW_LINE = 10
_ZERO = 48
_Bytes = NDArray[numpy.uint8]
_Numbers = NDArray[numpy.int64]


class LineArrays:
    """The whole lines `data`; `zeros` is the same with every digit as 0."""

    def __init__(self, data: bytes, zeros: bytes) -> None:
        self._data = data
        self._zeros = zeros
        self._ends = numpy.flatnonzero(numpy.frombuffer(data, numpy.uint8) == _NEW_LINE)
        self._begins = numpy.concatenate((numpy.zeros(1, numpy.int64), self._ends[:-1] + 1))
        self._lengths = self._ends - self._begins
        self._is_open = numpy.ones(len(self._ends), numpy.bool_)  # not set apart
        self._by_shape: dict[bytes, _Numbers] = {}
        # By length: the open lines, and their shapes.
        self._open: dict[int, tuple[_Numbers, NDArray[Any]]] = {}

    @property
    def count(self) -> int:
        return len(self._ends)

    def set_apart(self, shape: bytes) -> int:
        lines, shapes = self._open.get(len(shape)) or self._of_length(len(shape))
        are_alike = shapes == numpy.frombuffer(shape or b"\0", shapes.dtype)
        found = lines if are_alike.all() else lines[are_alike]
        if len(found):
            self._by_shape[shape] = found
            self._is_open[found] = False
            self._open[len(shape)] = lines[~are_alike], shapes[~are_alike]
        return len(found)

    def other(self) -> int | None:
        first = int(self._is_open.argmax())
        return first if self._is_open[first] else None

    def place(self, line: int) -> tuple[int, int]:
        return int(self._begins[line]), int(self._ends[line])

    def lines(self, shapes: Collection[bytes]) -> Sequence[int]:
        found = self._in_order(shapes)
        if len(found) == self.count:
            return range(self.count)
        numbers: list[int] = found.tolist()
        return numbers

    def tokens(
        self, places_of: Callable[[bytes], Sequence[TokenPlace]], shapes: Collection[bytes]
    ) -> Tokens:
        found = [(shape, self._by_shape[shape]) for shape in shapes]
        order = self._in_order(shapes)
        groups = [
            _Group(places_of(shape), self._bytes(lines, len(shape)), order.searchsorted(lines))
            for shape, lines in found
        ]
        return TokenArrays(groups, len(order))

    def _bytes(self, lines: _Numbers, length: int) -> _Bytes:
        """The texts of lines of one length, a row for each."""
        texts = _texts_at(self._data, self._begins[lines], length)
        return texts.view(numpy.uint8).reshape(len(lines), length)

    def _of_length(self, length: int) -> tuple[_Numbers, NDArray[Any]]:
        lines = numpy.flatnonzero(self._lengths == length)
        return lines, _texts_at(self._zeros, self._begins[lines], length)

    def _in_order(self, shapes: Collection[bytes]) -> _Numbers:
        found = [self._by_shape[shape] for shape in shapes]
        return found[0] if len(found) == 1 else numpy.sort(numpy.concatenate(found))


def _texts_at(data: bytes, begins: _Numbers, length: int) -> NDArray[Any]:
    """Texts of one length, each as one item."""
    if not length or not len(begins):
        return numpy.zeros(len(begins), f"V{length or 1}")
    texts = numpy.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))
    return texts[begins]


def whole_numbers(steps: array[float]) -> array[int]:
    """Steps without what is behind their point."""
    return array("q", numpy.frombuffer(steps).astype(numpy.int64).tobytes())


def never_fall(steps: array[float]) -> bool:
    """Whether no step is lower than the one before."""
    return bool((numpy.diff(numpy.frombuffer(steps)) >= 0).all())


@dataclass(frozen=True, slots=True)
class _Group:
    """Lines of one shape: their texts, and which of all rows they are."""

    places: Sequence[TokenPlace]
    texts: _Bytes
    rows: _Numbers

    def numbers(self, index: int) -> NDArray[numpy.float64]:
        """What `float` makes of the tokens at a place that are digits with a sign and a point."""
        place = self.places[index]
        values: NDArray[numpy.float64] = self.whole(index) / 10**place.decimals
        return -values if place.is_negative else values

    def whole(self, index: int) -> _Numbers:
        """The tokens' digits as a number."""
        first, *others = self.places[index].digits
        found: _Numbers = self.texts[:, first].astype(numpy.int64)
        for at in others:
            found *= 10
            found += self.texts[:, at]
        found -= _ZERO * (10 ** (1 + len(others)) - 1) // 9
        return found

    def only(self, kept: NDArray[numpy.bool_], numbers: _Numbers) -> _Group:
        """The lines that are `kept`, whose rows get other `numbers`."""
        return _Group(self.places, self.texts[kept], numbers[self.rows[kept]])

    def rows_without(self, index: int, fixed: bytes) -> _Numbers:
        """The rows in which a token is not `fixed`."""
        place = self.places[index]
        if place.end - place.begin != len(fixed):  # longer by its commas between thousands
            return self.rows[[text != fixed for text in self.tokens(index)]]
        texts = self.texts[:, place.begin : place.end]
        found: _Numbers = self.rows[(texts != numpy.frombuffer(fixed, numpy.uint8)).any(axis=1)]
        return found

    def tokens(self, index: int) -> list[bytes]:
        """The tokens as texts."""
        place = self.places[index]
        cut = numpy.ascontiguousarray(self.texts[:, place.begin : place.end])
        return [text.replace(b",", b"") for text in map(bytes, cut)]


class TokenArrays:
    """The tokens of lines of a few shapes."""

    def __init__(self, groups: Sequence[_Group], rows: int) -> None:
        self._groups = groups
        self._rows = rows
        self._known: dict[tuple[int, float], Sequence[float]] = {}

    @property
    def rows(self) -> int:
        return self._rows

    def has_width(self, width: int) -> bool:
        return all(len(group.places) == width for group in self._groups)

    def values(self, index: int, rows: slice, conversion: Conversion) -> Sequence[float]:
        key = index, conversion.scale
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._converted(index, conversion)
        return found if rows == slice(0, self._rows) else found[rows]

    def steps(self, index: int, conversion: Conversion) -> Sequence[float]:
        places = [group.places[index] for group in self._groups]
        are_whole = all(one.digits and not one.decimals and not one.is_negative for one in places)
        if are_whole and conversion.scale == 1.0 and self._rows > 1:
            steps = numpy.empty(self._rows, numpy.int64)
            for group in self._groups:
                steps[group.rows] = group.whole(index)
            first, between = int(steps[0]), int(steps[1] - steps[0])
            if between > 0 and bool((numpy.diff(steps) == between).all()):
                return EvenSteps(range(first, first + between * self._rows, between))
        return self.values(index, slice(0, self._rows), conversion)

    def repeat(self, index: int, rows: Collection[int]) -> bool:
        return False

    def rows_without(self, index: int, fixed: bytes) -> Collection[int]:
        found = [group.rows_without(index, fixed) for group in self._groups]
        rows: list[int] = numpy.concatenate(found).tolist()
        return rows

    def without(self, rows: Sequence[int]) -> Tokens:
        kept = numpy.ones(self._rows, numpy.bool_)
        kept[rows] = False
        numbers = numpy.cumsum(kept) - 1
        groups = [group.only(kept[group.rows], numbers) for group in self._groups]
        return TokenArrays([group for group in groups if len(group.rows)], self._rows - len(rows))

    def _converted(self, index: int, conversion: Conversion) -> Sequence[float]:
        if not all(group.places[index].digits for group in self._groups):
            return conversion.values(self._texts(index), None)
        values = numpy.empty(self._rows, numpy.float64)
        for group in self._groups:
            values[group.rows] = group.numbers(index)
        if conversion.scale != 1.0:
            values *= conversion.scale
        return array("d", values.tobytes())

    def _texts(self, index: int) -> list[bytes]:
        texts = [b""] * self._rows
        for group in self._groups:
            for row, text in zip(group.rows.tolist(), group.tokens(index), strict=True):
                texts[row] = text
        return texts
