"""Whether to continue to read: a reader of a file of others asks before each file or block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], object] | None] = ContextVar("check", default=None)


@contextmanager
def checked_by(check: Callable[[], object]) -> Iterator[None]:
    """Within, reading ends by what `check` raises."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_reading() -> None:
    """Raises: what the caller's check raises; without one, nothing."""
    check = _check.get()
    if check is not None:
        check()
