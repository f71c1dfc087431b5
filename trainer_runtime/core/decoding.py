"""JSON from another machine, decoded within limits."""

from __future__ import annotations

import json

DEEPEST = 32


class DecodingError(ValueError):
    """A text that is not JSON, or exceeds a limit."""


def decode_json(text: str | bytes, *, largest: int, deepest: int = DEEPEST) -> object:
    """The value of a JSON text of at most `largest` characters (bytes), nested at most `deepest`.

    Raises:
        DecodingError: it is longer, deeper, or not JSON.
    """
    if len(text) > largest:
        raise DecodingError(f"{len(text)} characters, of which at most {largest} are read")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DecodingError(f"not JSON: {error}") from None
    if _is_deeper(value, deepest):
        raise DecodingError(f"nested more than {deepest} levels deep")
    return value


def _is_deeper(value: object, deepest: int) -> bool:
    level: list[object] = [value]
    for _ in range(deepest):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return any(isinstance(value, (dict, list)) for value in level)
