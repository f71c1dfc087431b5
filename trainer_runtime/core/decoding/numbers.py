"""Floats in JSON, which has no words for NaN and the infinities: there they are strings."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer_runtime.core.decoding.limits import COUNTS_END

NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


def number(value: object) -> float | None:
    """The float that a field holds, by number or by name; None for anything else."""
    if type(value) is float:  # nearly all
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond what a float can hold
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return None


def only_numbers(values: Mapping[str, object]) -> dict[str, object]:
    """The fields that hold a float, by number or by name; integers beyond 2**53 as floats."""
    found = {}
    for name, value in values.items():
        known = number(value)
        if known is not None:
            is_exact = isinstance(value, int) and abs(value) < COUNTS_END
            found[name] = value if is_exact or isinstance(value, str) else known
    return found


def named(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
