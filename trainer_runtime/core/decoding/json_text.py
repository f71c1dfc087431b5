"""From bytes to values, within limits of size and depth."""

from __future__ import annotations

import json
from collections.abc import Iterable

from trainer_runtime.core.decoding.error import DecodingError, LimitError
from trainer_runtime.core.decoding.fields import Fields
from trainer_runtime.core.decoding.limits import MAX_DEPTH, MAX_RECORD_BYTES, MAX_VALUES

# Python's `NaN` and `Infinity` become the strings that we write for them.
_DECODER = json.JSONDecoder(parse_constant=str)
_scan = _DECODER.scan_once  # type: ignore[attr-defined]


def decode_value(
    data: bytes | str,
    place: str,
    *,
    max_bytes: int = MAX_RECORD_BYTES,
    max_depth: int = MAX_DEPTH,
) -> object:
    """The JSON value that `data` holds; `place` names its file or answer in errors.

    Raises:
        LimitError: it is longer or deeper than allowed, or needs more memory than there is.
        DecodingError: it is not UTF-8, or not JSON.
    """
    if len(data) > max_bytes:
        raise LimitError(place, "", f"is longer than {max_bytes} bytes")
    if len(data) > MAX_RECORD_BYTES and _brackets(data) + _commas(data) > MAX_VALUES:
        raise LimitError(place, "", f"holds more than {MAX_VALUES:,} values")
    try:
        value = _parsed(data)
    except RecursionError:
        raise _too_deep(place, max_depth) from None
    except MemoryError:
        raise LimitError(place, "", "needs more memory than there is") from None
    except ValueError as error:
        raise DecodingError(place, "", f"is not JSON: {error}") from None
    # Brackets are counted first: hardly anything has as many as it takes to be too deep.
    if len(data) > max_depth < _brackets(data) and _is_deeper(value, max_depth):
        raise _too_deep(place, max_depth)
    return value


def decode_fields(
    data: bytes | str,
    place: str,
    *,
    max_bytes: int = MAX_RECORD_BYTES,
    max_depth: int = MAX_DEPTH,
) -> Fields:
    """The JSON object that `data` holds.

    Raises:
        DecodingError: as `decode_value`, or it is not an object.
    """
    value = decode_value(data, place, max_bytes=max_bytes, max_depth=max_depth)
    if not isinstance(value, dict):
        raise DecodingError(place, "", "is not a JSON object")
    return Fields(value, place)


def _parsed(data: bytes | str) -> object:
    """As `JSONDecoder.decode`; without its search for spaces where there are none, as in lines."""
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogatepass")
    text = text.removeprefix("\ufeff")
    try:
        value, end = _scan(text, 0)
    except StopIteration:  # spaces, or nothing
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def _brackets(data: bytes | str) -> int:
    if isinstance(data, str):
        return data.count("{") + data.count("[")
    return data.count(b"{") + data.count(b"[")


def _commas(data: bytes | str) -> int:
    return data.count(",") if isinstance(data, str) else data.count(b",")


def _too_deep(place: str, max_depth: int) -> LimitError:
    return LimitError(place, "", f"is nested deeper than {max_depth} levels")


def _is_deeper(value: object, levels: int) -> bool:
    """Level by level, since what is too deep for us may be too deep for a recursion."""
    level: list[object] = [value]
    for _ in range(levels):
        level = [item for node in level for item in _items(node)]
        if not level:
            return False
    return any(isinstance(node, (dict, list)) for node in level)


def _items(node: object) -> Iterable[object]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return (item for item in inner if isinstance(item, (dict, list)))
