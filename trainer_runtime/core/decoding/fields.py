"""An object's values by their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from trainer_runtime.core.decoding.error import DecodingError
from trainer_runtime.core.decoding.limits import (
    COUNTS_END,
    LARGEST_INTEGER,
    LEAST_INTEGER,
    TIMES_END,
)

NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
T = TypeVar("T")


class _Required:
    """The default of a field that has none."""


_REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one JSON object. `place` is its file or answer, `path` its dotted name there.

    A field that is null counts as absent. An absent one takes the default; without a default it is
    an error. `find_…` gives None instead. Fields that nobody asks for are ignored.
    """

    values: Mapping[str, object]
    place: str = ""
    path: str = ""

    def text(self, name: str, default: str | _Required = _REQUIRED) -> str:
        return self._or(name, self.find_text(name), default)

    def find_text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.error(name, "is not a string")

    def integer(self, name: str, default: int | _Required = _REQUIRED) -> int:
        """Of 64 bits."""
        return self._or(name, self.find_integer(name), default)

    def find_integer(self, name: str) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        # Some writers know no integers: 100.0 is one.
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise self.error(name, "is not an integer")
        if not LEAST_INTEGER <= value <= LARGEST_INTEGER:
            raise self.error(name, "is beyond 64 bits")
        return value

    def number(self, name: str, default: float | _Required = _REQUIRED) -> float:
        """Finite, or by name `NaN`, `Infinity`, `-Infinity`."""
        return self._or(name, self.find_number(name), default)

    def find_number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, str) and value in NOT_FINITE:
            return float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(name, "is not a number")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise self.error(name, "is beyond the range of a float")
        return found

    def time(self, name: str, default: float | _Required = _REQUIRED) -> float:
        """Unix seconds, from 1970 to the year 9999."""
        return self._or(name, self.find_time(name), default)

    def find_time(self, name: str) -> float | None:
        value = self.find_number(name)
        if value is not None and not 0 <= value < TIMES_END:
            raise self.error(name, "is not a time between 1970 and 9999")
        return value

    def flag(self, name: str, default: bool | _Required = _REQUIRED) -> bool:
        return self._or(name, self.find_flag(name), default)

    def find_flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.error(name, "is neither true nor false")

    def section(self, name: str) -> Fields:
        """The fields of an object; without any where it is absent."""
        return self.find_section(name) or Fields({}, self.place, self._path_of(name))

    def find_section(self, name: str) -> Fields | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(name, "is not an object")
        return Fields(value, self.place, self._path_of(name))

    def part(self, name: str, read: Callable[[Fields], T]) -> T | None:
        """What `read` makes of an object; None where it is absent."""
        section = self.find_section(name)
        return None if section is None else read(section)

    def sections(self, name: str) -> tuple[Fields, ...]:
        """The objects of a list; none where it is absent."""
        return tuple(self._item(name, index, value) for index, value in enumerate(self._list(name)))

    def rows(self, name: str, *columns: str) -> tuple[Fields, ...]:
        """The rows of a list of lists, by the names of their columns; none where it is absent."""
        found = []
        for index, row in enumerate(self._list(name)):
            if not isinstance(row, (list, tuple)) or len(row) < len(columns):
                raise self.error(f"{name}[{index}]", f"is not a list of {len(columns)} values")
            values = dict(zip(columns, row, strict=False))
            found.append(Fields(values, self.place, self._path_of(f"{name}[{index}]")))
        return tuple(found)

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of a list; none where it is absent."""
        return tuple(self._each(name, str, "strings"))

    def integers(self, name: str) -> tuple[int, ...]:
        """The integers of a list; none where it is absent."""
        found = tuple(self._each(name, int, "integers"))
        if any(not LEAST_INTEGER <= value <= LARGEST_INTEGER for value in found):
            raise self.error(name, "has an integer beyond 64 bits")
        return found

    def text_map(self, name: str) -> dict[str, str]:
        """An object whose values are strings; empty where it is absent."""
        found = {}
        for key, value in self.open_map(name).items():
            if not isinstance(value, str):
                raise self.error(f"{name}.{key}", "is not a string")
            found[key] = value
        return found

    def open_map(self, name: str) -> Mapping[str, object]:
        """An object whose fields anybody may choose, as it is; empty where it is absent."""
        return self.section(name).values

    def error(self, name: str, problem: str) -> DecodingError:
        """That the field `name` can't be used."""
        return DecodingError(self.place, self._path_of(name), problem)

    def _or(self, name: str, value: T | None, default: T | _Required) -> T:
        if value is not None:
            return value
        if isinstance(default, _Required):
            raise self.error(name, "is missing")
        return default

    def _path_of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _list(self, name: str) -> list[object] | tuple[object, ...]:
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, (list, tuple)):
            raise self.error(name, "is not a list")
        return value

    def _item(self, name: str, index: int, value: object) -> Fields:
        if not isinstance(value, Mapping):
            raise self.error(f"{name}[{index}]", "is not an object")
        return Fields(value, self.place, self._path_of(f"{name}[{index}]"))

    def _each(self, name: str, kind: type[T], what: str) -> Iterator[T]:
        for value in self._list(name):
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.error(name, f"is not a list of {what}")
            yield value


def number(value: object) -> float | None:
    """The float that a field holds, by number or by name; None for anything else."""
    if type(value) is float:  # nearly all
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond what a float can hold
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return None


def only_numbers(values: Mapping[str, object]) -> dict[str, object]:
    """The fields that hold a float, by number or by name; integers beyond 2**53 as floats."""
    found = {}
    for name, value in values.items():
        known = number(value)
        if known is not None:
            is_exact = isinstance(value, int) and abs(value) < COUNTS_END
            found[name] = value if is_exact or isinstance(value, str) else known
    return found


def named(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
