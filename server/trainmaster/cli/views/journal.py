"""What people see of the supervisor's journal."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.protocol.figures import in_utc

_BOOKKEEPING = frozenset({"v", "seq", "t", "kind"})
_LONGEST_VALUE = 200


def journal_words(line: str) -> str:
    """A line of the journal as a time, what happened, and its values; any other line as it is."""
    try:
        event = decode_fields(line, "journal").values
    except DecodingError:
        return line
    t, kind = event.get("t"), event.get("kind")
    if not isinstance(t, (int, float)) or not isinstance(kind, str):
        return line
    shown = [words for name, value in event.items() if (words := _field(name, value))]
    return "  ".join([_time(t), kind.replace("_", " "), *shown])


def _time(t: float) -> str:
    try:
        return in_utc(t)
    except (OverflowError, OSError, ValueError):
        return "?"


def _field(name: str, value: object) -> str:
    """`name value`; nothing for bookkeeping and for what is empty."""
    if name in _BOOKKEEPING or value in (None, "", [], {}):
        return ""
    if isinstance(value, Mapping):
        inner = ", ".join(words for key, item in value.items() if (words := _field(str(key), item)))
        return f"{name} ({inner})" if inner else ""
    text = str(value)
    return f"{name} {text[:_LONGEST_VALUE]}{' …' if len(text) > _LONGEST_VALUE else ''}"
