"""Durations as specs and configs write them: `90s`, `10m`, `24h`, `1d`, `1h30m`."""

from __future__ import annotations

import re

_UNIT_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = r"(?:([0-9]{1,12}(?:\.[0-9]{1,6})?)%s)?"
_DURATION = re.compile("".join(_PART % unit for unit in _UNIT_S))
ACCEPTED = "a duration such as 90s, 10m, 24h, 1d or 1h30m"


def parse_duration(text: str) -> float:
    """The seconds that `text` stands for, more than zero.

    Raises:
        ValueError: `text` is not a duration, or is zero.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is not {ACCEPTED}")
    parts = zip(match.groups(), _UNIT_S.values(), strict=True)
    seconds = sum(float(number) * unit_s for number, unit_s in parts if number)
    if seconds <= 0:
        raise ValueError(f"{text!r} is a duration of no length")
    return float(seconds)


def format_duration(seconds: float) -> str:
    """The shortest writing with one whole number that stands for `seconds`: 5400 is `90m`.

    Fractions of a second are rounded, at least to `1s`.
    """
    whole = max(1, round(seconds))
    for unit, unit_s in _UNIT_S.items():
        if whole % unit_s == 0:
            return f"{whole // unit_s}{unit}"
    return f"{whole}s"
