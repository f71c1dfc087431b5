"""A bound on the time and memory of what reads a file that was made to take much of both."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

WITHIN_S = 20.0
MOST_BYTES = 1 << 30


@contextmanager
def bounded() -> Iterator[None]:
    """What happens inside takes seconds, and no memory to speak of."""
    begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - begun < WITHIN_S
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown << 10 < MOST_BYTES
