"""Numbers as people read them: durations, sizes, values, curves."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def size(size_bytes: float) -> str:
    """In the largest binary unit of which there is at least one: `12.5 MiB`."""
    value, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def value(number: object) -> str:
    """Four significant digits; whole numbers in full, thousands apart."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return str(number)
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:.4g}"


def sparkline(values: Sequence[object]) -> str:
    """The values as bars between their least and their greatest; `!` for what is not finite."""
    finite = [item for item in values if isinstance(item, int | float) and math.isfinite(item)]
    if not finite:
        return "!" * len(values)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_bar(item, low, span) for item in values)


def _bar(item: object, low: float, span: float) -> str:
    if not isinstance(item, int | float) or not math.isfinite(item):
        return "!"
    share = (item - low) / span if span > 0 else 0.0
    return _BARS[min(int(share * len(_BARS)), len(_BARS) - 1)]
