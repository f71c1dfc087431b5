"""Seconds that this process was awake, by which it measures the silence of another node.

Where a virtual machine or a job of Slurm is suspended, the listener stands still with the others;
where one is overloaded, it is late itself. What it could not have heard then is not silence.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TICK_S = 0.5
# Of a longer time between two readings, in which this process did not run, this share of the
# silence counts: where a machine swaps, a node that is gone is still noticed in thrice that time.
_LONGEST_SHARE = 0.4


class AwakeClock:
    """Advances with `read`, but from one reading to the next at most by two fifths of `silent_s`,
    the silence that it measures. Something has to read it twice a second, such as a loop;
    `ticking` does where no loop is as regular."""

    def __init__(self, silent_s: float, read: Callable[[], float] = time.monotonic) -> None:
        self._longest_s, self._read = _LONGEST_SHARE * silent_s, read
        self._lock = threading.Lock()
        self._last_s, self._awake_s = read(), 0.0

    def now(self) -> float:
        """Seconds since its creation."""
        with self._lock:
            now_s = self._read()
            self._awake_s += min(now_s - self._last_s, self._longest_s)
            self._last_s = now_s
            return self._awake_s

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Inside, a thread reads it."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(_TICK_S):
                self.now()

        thread = threading.Thread(target=tick, name="awake", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
