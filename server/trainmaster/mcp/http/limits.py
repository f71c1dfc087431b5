"""How many requests somebody may make: a bucket of tokens each, refilled as time passes."""

from __future__ import annotations

_MOST_NAMES = 10_000


class RequestLimit:
    """So many requests a minute for each name; as many at once."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str, now_s: float) -> float:
        """0 where the request of `name` counts as made; else how long until the next one may."""
        left, at_s = self._left.get(name, (float(self._per_minute), now_s))
        left = min(self._per_minute, left + (now_s - at_s) * self._per_minute / 60)
        if left < 1:
            self._left[name] = (left, now_s)
            return (1 - left) * 60 / self._per_minute
        if name not in self._left and len(self._left) >= _MOST_NAMES:
            self._left.pop(next(iter(self._left)))
        self._left[name] = (left - 1, now_s)
        return 0.0
