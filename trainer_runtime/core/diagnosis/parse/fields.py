"""`name: number unit` and similar pairs, which most lines consist of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from trainer_runtime.core.diagnosis.parse.names import key_of
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, UNITS, number

_NAME = rb"\s*([A-Za-z_][\w ./-]*?)\s*(?:\(([^()]{1,20})\))?\s*"
_UNIT = rb"\s?(%|[A-Za-z]+(?:/[A-Za-z]+)?)?(?![\w.])"
# The same, but to the end of the words at once: a colon can't be within a name.
_WHOLE_NAME = rb"\s*([A-Za-z_](?:[\w ./-]*[\w./-])?)\s*(?:\(([^()]{1,20})\))?\s*"
_NAMED = re.compile(_WHOLE_NAME + rb"[:=]\s*(" + NUMBER + rb")" + _UNIT)
_BESIDE = re.compile(_NAME + rb"(?<![\w.])(" + NUMBER + rb")" + _UNIT)
_SECONDS = frozenset((b"ms", b"us", b"s", b"sec", b"m", b"h"))
_GIB = frozenset((b"GiB", b"GB", b"MiB", b"MB"))

Pair = tuple[str, float]


def pairs_of(parts: Iterable[bytes], names: Mapping[str, str] | None = None) -> list[Pair]:
    """Metric keys and values of parts that begin with `name: number unit`; others are skipped.

    Milliseconds become seconds, MiB become GiB, an MFU in per cent a fraction. `names` maps names
    whose meaning is particular to a dialect; `""` leaves one out.
    """
    found: dict[str, float] = {}
    for name, raw_value, unit in raw_fields(parts):
        own_name = name if names is None else names.get(name.lower(), name)
        key = key_of(own_name) if own_name else None
        if key is not None:
            key, value = in_our_unit(key, raw_value, unit)
            found.setdefault(key, value)
    return list(found.items())


def raw_fields(parts: Iterable[bytes]) -> Iterator[tuple[str, float, bytes]]:
    for part in parts:
        match = _NAMED.match(part)
        if match is None and b":" not in part and b"=" not in part:
            match = _BESIDE.match(part)
        if match is None:
            continue
        name, of_name, text, behind = match.groups()
        value = number(text)
        if value is not None:
            unit = of_name if of_name in UNITS else behind or b""
            yield name.decode(), value, unit


def in_our_unit(key: str, value: float, unit: bytes) -> Pair:
    """`key` and `value` in seconds, GiB or as a fraction; the key gets the unit's suffix."""
    if unit == b"%" and key != "mfu":
        return key, value
    if unit in _SECONDS and not key.endswith("_s"):
        key += "_s"
    elif unit in _GIB and not key.endswith("_gib"):
        key += "_gib"
    return key, value * UNITS.get(unit, 1.0)
