"""Where each framework puts the value of a field, and which values it has no place for.

One source for three things: the mapping table of docs/frameworks.md, the reference of the fields,
and what planning refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

from trainer_runtime.core.records import dataclass

Framework = Literal["nanogpt", "litgpt", "hf", "trl", "script"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)

NOT_BUILT = "not built yet"
_PROGRAM = "the program's own arguments decide it"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lands:
    """A field's place in every framework."""

    nanogpt: Place
    litgpt: Place
    hf: Place
    trl: Place
    script: Place

    def __getitem__(self, framework: Framework) -> Place:
        place: Place = getattr(self, framework)
        return place

    def __iter__(self) -> Iterator[tuple[Framework, Place]]:
        return ((framework, self[framework]) for framework in FRAMEWORKS)


def lands(
    *,
    nanogpt: str | Place,
    litgpt: str | Place,
    hf: str | Place,
    trl: str | Place | None = None,
    script: str | Place | None = None,
) -> Lands:
    """A place for each framework; without one for TRL it is as in HF Trainer, whose arguments
    TRL's own take over. A program that is run as it is has one only where that is given."""
    return Lands(
        nanogpt=_place(nanogpt),
        litgpt=_place(litgpt),
        hf=_place(hf),
        trl=_place(hf if trl is None else trl),
        script=nowhere(_PROGRAM) if script is None else _place(script),
    )


def everywhere(where: str | Place, script: str | Place | None = None) -> Lands:
    """The same place in every framework, because it is ours and not the framework's; `script`:
    that of a program that is run as it is, where it is another one."""
    return lands(nanogpt=where, litgpt=where, hf=where, script=where if script is None else script)


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


def not_built() -> Lands:
    """No place in any framework so far."""
    return everywhere(nowhere(NOT_BUILT))


def _place(given: str | Place) -> Place:
    return Place(given) if isinstance(given, str) else given


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
