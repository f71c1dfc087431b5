"""Where a value of a field is put, and which values have no place.

One source for three things: the mapping table of docs/frameworks.md, the reference of the fields,
and what planning refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOT_BUILT = "not built yet"


@dataclass(frozen=True, slots=True)
class Place:
    """What becomes of a field's value in one framework.

    `where`: the framework's own argument, or the part of ours that acts on the value; empty where
    there is none, and then only the field's default is taken. `takes`: the values that it can do,
    or a predicate; None takes every one. `words` says in words what it takes, `lacks` why not
    the others.
    """

    where: str
    takes: tuple[Any, ...] | Callable[[Any], bool] | None = None
    words: str = ""
    lacks: str = ""

    def accepts(self, value: Any, default: Any) -> bool:
        """Whether the framework can do this value of a field with this default."""
        if self.takes is None:
            return bool(self.where) or value == default
        if isinstance(self.takes, tuple):
            return value in self.takes
        return self.takes(value)


def place(where: str | Place) -> Place:
    """A place that takes every value, where a text alone is given."""
    return Place(where) if isinstance(where, str) else where


def only(where: str, *values: Any, lacks: str = NOT_BUILT) -> Place:
    """A place for some values alone."""
    *most, last = [_shown(value) for value in values]
    words = f"{', '.join(most)} or {last}" if most else last
    return Place(where, values, words, lacks)


def such(where: str, takes: Callable[[Any], bool], words: str, *, lacks: str = NOT_BUILT) -> Place:
    """A place for the values that `takes` accepts, described by `words`."""
    return Place(where, takes, words, lacks)


def nowhere(lacks: str) -> Place:
    """No place: only the field's default is taken, which does nothing there."""
    return Place("", None, "its default alone", lacks)


NOT_BUILT_YET = nowhere(NOT_BUILT)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
