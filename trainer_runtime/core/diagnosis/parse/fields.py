"""`name: number unit` and its kin: the pairs that most lines are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from trainer_runtime.core.diagnosis.parse.names import key_of
from trainer_runtime.core.diagnosis.parse.quantities import NUMBER, UNITS, number

_NAME = rb"\s*([A-Za-z_][\w ./-]*?)\s*(?:\(([^()]{1,20})\))?\s*"
_UNIT = rb"\s?(%|[A-Za-z]+(?:/[A-Za-z]+)?)?(?![\w.])"
_NAMED = re.compile(_NAME + rb"[:=]\s*(" + NUMBER + rb")" + _UNIT)
_BESIDE = re.compile(_NAME + rb"(?<![\w.])(" + NUMBER + rb")" + _UNIT)
_SECONDS = frozenset((b"ms", b"us", b"s", b"sec", b"m", b"h"))
_GIB = frozenset((b"GiB", b"GB", b"MiB", b"MB"))

Pair = tuple[str, float]


def pairs_of(parts: Iterable[bytes], names: Mapping[str, str] | None = None) -> list[Pair]:
    """Metric keys and values of parts that each begin `name: number unit`; others are passed over.

    Milliseconds become seconds, MiB GiB, an MFU in per cent a fraction. `names` are a dialect's
    words that mean something else elsewhere; `""` leaves one out.
    """
    found: dict[str, float] = {}
    for name, number_told, unit in raw_fields(parts):
        told = name if names is None else names.get(name.lower(), name)
        key = key_of(told) if told else None
        if key is not None:
            key, value = in_our_unit(key, number_told, unit)
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
    """`key` and `value` in seconds, GiB or as a fraction; a key that is no known word says so."""
    if unit == b"%" and key != "mfu":
        return key, value
    if unit in _SECONDS and not key.endswith("_s"):
        key += "_s"
    elif unit in _GIB and not key.endswith("_gib"):
        key += "_gib"
    return key, value * UNITS.get(unit, 1.0)
