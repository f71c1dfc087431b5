"""What is found in an output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MISSHAPEN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# A step, and what was measured at it.
Point = tuple[int, dict[str, float]]


class UnusableError(Exception):
    """A checkpoint that can't be resumed from; says why."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A checkpoint that was read whole.

    `shape` holds what a spec has to agree with, `described` what else it tells of its training,
    both in the words of the spec (dotted fields); `open` names fields that a spec needs and it
    can't tell. `history`: what was measured up to it. `rate`: the learning rate of the step after
    it, where that is known. `notes`: what a resume from it can't have.
    """

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    open: Sequence[str] = ()
    history: Sequence[Point] = ()
    rate: float | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """How one framework leaves its checkpoints.

    `candidates` gives the places of those that may be checkpoints, below a folder, newest last as
    far as names tell; `named_step` the step that such a place is named by. `examine` reads one
    whole, and raises `UnusableError`.
    """

    framework: str
    looked_for: str
    candidates: Callable[[Path], list[Path]]
    named_step: Callable[[Path], int | None]
    examine: Callable[[Path], Examined]


def examined(kind: Kind, place: Path) -> Examined:
    """`kind.examine`, also of what nobody has thought of.

    Raises:
        UnusableError: it can't be resumed from.
    """
    try:
        return kind.examine(place)
    except _MISSHAPEN as error:
        raise UnusableError(f"misshapen: {type(error).__name__} where it was read") from None


def files_of(place: Path) -> list[Path]:
    """The files of a checkpoint, which is a file or a folder."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.is_file())


def stamp_of(place: Path) -> str:
    """What changes when anybody writes to a checkpoint: its files' names, sizes and times."""
    seen = hashlib.sha256()
    for path in files_of(place):
        status = path.stat()
        name = path.relative_to(place).as_posix()
        seen.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="replace"))
    return seen.hexdigest()[:16]
