"""Numbers as frameworks print them, with their units."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from math import isnan

# One number: thousands separated by commas, exponents, and the words for non-finite values.
NUMBER = (
    rb"(?:[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?"
    rb"|[-+]?(?:nan|NaN|NAN|inf|Inf|Infinity|INF)(?:\b|(?=m?s\b)))"
)
# Factors of units, to seconds, GiB, fractions and plain counts.
UNITS: dict[bytes, float] = {
    b"": 1.0,
    b"ms": 1e-3,
    b"us": 1e-6,
    b"s": 1.0,
    b"sec": 1.0,
    b"m": 60.0,
    b"h": 3600.0,
    b"%": 0.01,
    b"GiB": 1.0,
    b"GB": 1.0,  # torch's tools print 2**30 under this name
    b"MiB": 1 / 1024,
    b"MB": 1 / 1024,
}
_LARGEST_STEP = 2.0**53
_STAMP = re.compile(
    rb"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?(Z|[-+]\d\d:?\d\d)?"
)
_EPOCH_SECONDS = re.compile(
    rb'"(?:t|ts|time|timestamp|_timestamp)"\s*:\s*(\d{9,10}(?:\.\d+)?)\s*[,}]'
)
_STAMP_WITHIN = 120  # bytes from the line's start: a later one is not the line's time


def number(text: bytes) -> float | None:
    """The value of `text`, with commas between thousands; None if it is not a number."""
    try:
        return float(text.replace(b",", b"") if b"," in text else text)
    except ValueError:
        return None


def step_number(text: bytes) -> float | None:
    """The step: an integer from 0 to 2**53, else None."""
    value = number(text)
    if value is None or not 0 <= value <= _LARGEST_STEP or value != int(value):
        return None
    return value


def same(one: float, other: float) -> bool:
    return one == other or (isnan(one) and isnan(other))


def time_of(line: bytes) -> float | None:
    """The time in a line as Unix seconds; without a zone it counts as UTC."""
    found = _STAMP.search(line, 0, _STAMP_WITHIN)
    if found is None:
        seconds = _EPOCH_SECONDS.search(line) if b'"' in line else None
        return float(seconds[1]) if seconds else None
    *parts, fraction, zone = found.groups()
    try:
        moment = datetime(*map(int, parts), tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]
    except ValueError:
        return None
    if fraction:
        moment += int(fraction) / 10 ** len(fraction)
    if zone and zone != b"Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        moment -= (1 if zone[:1] == b"+" else -1) * (hours * 3600 + minutes * 60)
    return moment
