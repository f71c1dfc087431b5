"""The lines of a block as arrays: all of one shape are compared, and all numbers in one place of
them converted, at once."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
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
_LARGEST_POWER = 22  # of ten that a float is exactly
_POWERS = numpy.array([float(10**power) for power in range(_LARGEST_POWER + 1)])
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

    def tokens(self, places: Mapping[bytes, Sequence[TokenPlace]]) -> Tokens:
        order = self._in_order(places)
        groups = []
        for shape, of_shape in places.items():
            lines = self._by_shape[shape]
            rows = order.searchsorted(lines)
            groups.append(_Group(of_shape, self._bytes(lines, len(shape)), rows))
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


@dataclass(frozen=True, slots=True)
class _Group:
    """Lines of one shape: their texts, and which of all rows they are."""

    places: Sequence[TokenPlace]
    texts: _Bytes
    rows: _Numbers

    def numbers(self, index: int) -> NDArray[numpy.float64] | None:
        """What `float` makes of the tokens at a place; None where arrays can't compute it.

        Digits without the point, up to 15, and a power of ten up to 22 are exact floats. So their
        product or quotient is rounded once, as the text's value is."""
        place = self.places[index]
        if not place.digits:
            return None
        powers: _Numbers | int = place.decimals
        if place.exponent:
            exponents = self._whole(place.exponent)
            powers = place.decimals + (exponents if place.exponent_is_negative else -exponents)
            if powers.min() < -_LARGEST_POWER or powers.max() > _LARGEST_POWER:
                return None
        digits = self._whole(place.digits)
        values: NDArray[numpy.float64] = (
            digits / _POWERS[numpy.maximum(powers, 0)] * _POWERS[numpy.maximum(-powers, 0)]
        )
        return -values if place.is_negative else values

    def whole(self, index: int) -> _Numbers:
        """The tokens at a place as numbers, of digits alone."""
        return self._whole(self.places[index].digits)

    def _whole(self, places: Sequence[int]) -> _Numbers:
        found: _Numbers = self.texts[:, places[0]].astype(numpy.int64)
        for at in places[1:]:
            found *= 10
            found += self.texts[:, at]
        found -= _ZERO * (10 ** len(places) - 1) // 9
        return found

    def only(self, kept: NDArray[numpy.bool_], numbers: _Numbers) -> _Group:
        """The lines that are `kept`, whose rows get other `numbers`."""
        return _Group(self.places, self.texts[kept], numbers[self.rows[kept]])

    def rows_without(self, index: int, fixed: bytes) -> _Numbers:
        """The rows in which a token is not `fixed`."""
        place = self.places[index]
        if place.end - place.begin != len(fixed):  # longer by its commas between thousands
            return self.rows[[text != fixed for text in self.tokens(index)]]
        is_other = (self._texts(index) != numpy.frombuffer(fixed, numpy.uint8)).any(axis=1)
        found: _Numbers = self.rows[is_other]
        return found

    def repeat(self, index: int, rows: Collection[int]) -> bool:
        """Whether each of these rows, where the group has all, has the token of the row before."""
        texts, chosen = self._texts(index), numpy.fromiter(rows, numpy.int64)
        return bool((texts[chosen] == texts[chosen - 1]).all())

    def tokens(self, index: int) -> list[bytes]:
        """The tokens as texts."""
        place = self.places[index]
        cut = numpy.ascontiguousarray(self._texts(index)).view(f"S{place.end - place.begin}")
        found: list[bytes] = cut.ravel().tolist()
        return [text.replace(b",", b"") for text in found] if b"," in found[0] else found

    def _texts(self, index: int) -> _Bytes:
        place = self.places[index]
        return self.texts[:, place.begin : place.end]


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
        are_whole = all(group.places[index].is_whole for group in self._groups)
        if are_whole and conversion.scale == 1.0 and self._rows > 1:
            steps = numpy.empty(self._rows, numpy.int64)
            for group in self._groups:
                steps[group.rows] = group.whole(index)
            first, between = int(steps[0]), int(steps[1] - steps[0])
            if between > 0 and bool((numpy.diff(steps) == between).all()):
                return EvenSteps(range(first, first + between * self._rows, between))
        return self.values(index, slice(0, self._rows), conversion)

    def repeat(self, index: int, rows: Collection[int]) -> bool:
        return len(self._groups) == 1 and self._groups[0].repeat(index, rows)

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
        values = numpy.empty(self._rows, numpy.float64)
        for group in self._groups:
            numbers = group.numbers(index)
            if numbers is None:
                return conversion.values(self._texts(index), None)
            values[group.rows] = numbers
        if conversion.scale != 1.0:
            values *= conversion.scale
        return array("d", values.tobytes())

    def _texts(self, index: int) -> list[bytes]:
        if len(self._groups) == 1:
            return self._groups[0].tokens(index)
        texts = numpy.empty(self._rows, numpy.object_)
        for group in self._groups:
            texts[group.rows] = group.tokens(index)
        found: list[bytes] = texts.tolist()
        return found
