"""How figures read: numbers, shares, sizes, money, durations and moments.

The one module for it, used by the command line, MCP, pages, alerts and hosts alike; `format.js` of
the board has the same rules. Durations as specs write them are in `duration.py`.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import overload

from trainer_runtime.core.decoding import named

_GIB = 2.0**30
_LARGEST_IN_FULL = 1e15
_DURATIONS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def number_text(number: object, digits: int = 4) -> str:
    """Whole numbers in full, thousands apart; others in four significant digits: `3.287`.

    What isn't a number stays as it is written; what isn't finite has its name in JSON.
    """
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return str(number)
    if not math.isfinite(number):
        return str(named(number))
    if float(number).is_integer() and abs(number) < _LARGEST_IN_FULL:
        return f"{int(number):,}"
    if 1000 <= abs(number) < _LARGEST_IN_FULL:
        return f"{number:,.{max(0, digits - len(str(int(abs(number)))))}f}"
    return f"{number:.{digits}g}"


def rounded(number: float, digits: int = 6) -> float:
    """A figure of an answer, in six significant digits; of large ones, such as moments, all until
    the thousandths."""
    return round(number, 3) if abs(number) >= 1e5 and digits == 6 else float(f"{number:.{digits}g}")


def share_text(share: float, decimals: int = 0) -> str:
    """`12 %` of 0.12."""
    return f"{100 * share:.{decimals}f} %"


def size_text(size_bytes: float) -> str:
    """In the largest binary unit of which there is at least one: `12.5 MiB`, `80 GiB`, `0 B`."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    number = f"{value:.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")
    return f"{number} {unit}"


def gib_text(gib: float) -> str:
    """A size that is measured in GiB."""
    return size_text(gib * _GIB)


def usd_text(amount: float | None) -> str:
    """`$1.20`; finer below ten cents: `$0.0042`; `$?` where it isn't known."""
    if amount is None:
        return "$?"
    return f"${amount:,.4f}" if 0 < amount < 0.1 else f"${amount:,.2f}"


def spoken_duration(seconds: float) -> str:
    """For people, in at most two units: `0.35 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`."""
    if 0 < seconds < 0.95:
        return f"{seconds:.2g} s"
    whole = max(0, round(seconds))
    for unit_s, unit, smaller_s, smaller in _DURATIONS:
        if whole >= unit_s:
            rest = whole % unit_s // smaller_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def spoken_hours(hours: float) -> str:
    """The same of a duration that is measured in hours."""
    return spoken_duration(3600 * hours)


def rough_duration(seconds: float) -> str:
    """By its largest unit: `32 min`."""
    return " ".join(spoken_duration(seconds).split()[:2])


@overload
def in_utc(t: float) -> str: ...
@overload
def in_utc(t: None) -> None: ...
@overload
def in_utc(t: float | None) -> str | None: ...
def in_utc(t: float | None) -> str | None:
    """A moment in Unix seconds: `2026-11-28T06:31:26Z`; None for None."""
    if t is None:
        return None
    return datetime.fromtimestamp(t, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
