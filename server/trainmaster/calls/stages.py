"""What a long call is doing, for the face that shows its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Stage:
    """What is being done now, in a few words; empty before the first one."""

    text: str = ""


_current: ContextVar[Stage | None] = ContextVar("stage", default=None)


@contextmanager
def followed_stage() -> Iterator[Stage]:
    """Within, `enter_stage` changes the stage that this gives; also in tasks that begin here."""
    token = _current.set(stage := Stage())
    try:
        yield stage
    finally:
        _current.reset(token)


def enter_stage(text: str) -> None:
    """Say what begins now; nothing happens where nobody follows."""
    stage = _current.get()
    if stage is not None:
        stage.text = text
