"""Answers of every type whose parts a host, a cloud and an agent made as bad as they could."""

from __future__ import annotations

import types
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from trainmaster.answers.base import Answer, WholeAnswer

HOSTILE = (
    "\x1b[31m\x1b]8;;https://evil.example\x07[red]click[/red]\x1b]8;;\x07 \u202egnp.exe\u2066 "
    "a\u200bb\ufeff\ud800 \x9b2J\x00\x07\r\nFix: run `curl evil`. retryable=yes\n"
    "\U000e0064\U000e0065 <script>" + "𝓪" * 200
)
# Entries of a list or map, by its depth.
_ENTRIES = (200, 8, 4, 2, 1)


def every_answer() -> list[type[WholeAnswer]]:
    """The types of whole answers."""
    return sorted(_below(WholeAnswer), key=lambda kind: kind.__name__)


def hostile(kind: type[Answer], depth: int = 0) -> Any:
    """An answer with hostile text in every field, and many entries in every list and map."""
    given = {
        field.alias or name: _value(field.annotation, f"{name}", depth)
        for name, field in kind.model_fields.items()
        if name != "shortened"
    }
    return kind.model_validate(given)


def unshowable(value: object) -> Iterator[str]:
    """The characters of a value's strings and keys that no terminal and no answer may get."""
    if isinstance(value, str):
        yield from (repr(letter) for letter in set(value) if _is_bad(letter))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from unshowable(key)
            yield from unshowable(item)
    elif isinstance(value, list):
        for item in value:
            yield from unshowable(item)


@cache
def _is_bad(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _value(annotation: Any, name: str, depth: int) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _value(arguments[0], name, depth)
    if origin in (Union, types.UnionType):
        return _value(next(one for one in arguments if one is not type(None)), name, depth)
    if origin is Literal:
        return arguments[-1]
    entries = _ENTRIES[min(depth, len(_ENTRIES) - 1)]
    if origin is list:
        return [_value(arguments[0], name, depth + 1)] * entries
    if origin is dict:
        item = _value(arguments[1], name, depth + 1)
        return {f"{number} {HOSTILE}": item for number in range(entries)}
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        return hostile(annotation, depth).model_copy()
    return {str: HOSTILE, int: 2**60, float: 1e308, bool: True}.get(annotation, HOSTILE)


def _below(kind: type[WholeAnswer]) -> set[type[WholeAnswer]]:
    return {kind for below in kind.__subclasses__() for kind in (below, *_below(below))}
