"""Neighbouring points of a series as bytes: a store of points is mostly the cost of their rows.

The first byte says how x stands there: `_EVEN`, its first value and the distance, or `_EACH`, every
value. After it come the times and the values, 8 bytes each; an unknown time is NaN. Little-endian.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache

from trainmaster.store.buckets import Row

_EVEN, _EACH = b"\x00", b"\x01"
_EVEN_X = struct.Struct("<qq")
_KIND_BYTES, _NUMBER_BYTES = 1, 8


def packed(steps: Sequence[int], times: Sequence[float | None], values: Sequence[float]) -> bytes:
    """One or more points by column, x rising."""
    count = len(steps)
    try:
        numbers = _numbers(2 * count).pack(*times, *values)
    except struct.error:
        finite_times = [math.nan if t is None else t for t in times]
        numbers = _numbers(2 * count).pack(*finite_times, *values)
    first = steps[0]
    apart = steps[1] - first if count > 1 else 1
    if steps[-1] - first == apart * (count - 1) and tuple(steps) == tuple(
        range(first, first + apart * count, apart)
    ):
        return _EVEN + _EVEN_X.pack(first, apart) + numbers
    return _EACH + _whole_numbers(count).pack(*steps) + numbers


def unpacked(data: bytes) -> list[Row]:
    """The points, in order."""
    count = _count(data)
    begin = len(data) - 2 * count * _NUMBER_BYTES
    if data[:_KIND_BYTES] == _EVEN:
        first, apart = _EVEN_X.unpack_from(data, _KIND_BYTES)
        steps: Sequence[int] = range(first, first + apart * count, apart)
    else:
        steps = _whole_numbers(count).unpack_from(data, _KIND_BYTES)
    numbers = _numbers(2 * count).unpack_from(data, begin)
    times: Sequence[float | None] = numbers[:count]
    if math.isnan(sum(numbers[:count])):
        times = [None if math.isnan(t) else t for t in numbers[:count]]
    return list(zip(steps, times, numbers[count:], strict=True))


def values_of(data: bytes) -> tuple[float, ...]:
    """The values alone, in a third of the time."""
    count = _count(data)
    return _numbers(count).unpack_from(data, len(data) - count * _NUMBER_BYTES)


def _count(data: bytes) -> int:
    """How many points there are."""
    if data[:_KIND_BYTES] == _EVEN:
        return (len(data) - _KIND_BYTES - _EVEN_X.size) // (2 * _NUMBER_BYTES)
    return (len(data) - _KIND_BYTES) // (3 * _NUMBER_BYTES)


@lru_cache(maxsize=256)
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}d")


@lru_cache(maxsize=256)
def _whole_numbers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}q")
