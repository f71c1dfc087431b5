"""How many requests somebody may make: a bucket of tokens each, refilled as time passes."""

from __future__ import annotations

from collections.abc import Hashable

_MOST_KEYS = 10_000


class RequestLimit:
    """So many requests a minute for each key, and `at_once` of them at once, else all."""

    def __init__(self, per_minute: int, at_once: int | None = None) -> None:
        self._per_minute = per_minute
        self._most = float(at_once or per_minute)
        self._left: dict[Hashable, tuple[float, float]] = {}

    def wait_s(self, key: Hashable, now_s: float) -> float:
        """0 where the request of `key` counts as made; else how long until the next one may."""
        left, at_s = self._left.pop(key, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_minute / 60)
        if len(self._left) >= _MOST_KEYS:  # the one that has made none for longest
            self._left.pop(next(iter(self._left)))
        self._left[key] = (left - 1 if left >= 1 else left, now_s)
        return 0.0 if left >= 1 else (1 - left) * 60 / self._per_minute
