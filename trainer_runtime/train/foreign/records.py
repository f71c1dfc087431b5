"""The checkpoint formats of other trainers, and what is read from one checkpoint."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MISSHAPEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
)
# A step, and what was measured at it.
Point = tuple[int, dict[str, float]]


class UnusableError(Exception):
    """A checkpoint that can't be resumed from; says why."""


class NamesCodeError(UnusableError):
    """A pickle that names code, which is never run; nothing of it was read."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A checkpoint that was read whole.

    `shape` holds the spec fields that must match, `described` the other known spec fields of the
    training (dotted names); `open` names spec fields that the checkpoint does not give.
    `history`: the values measured up to it. `rate`: the learning rate of the following step, where
    it is known. `notes`: what a resume from it lacks.
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
    """The checkpoint format of one framework.

    `candidates` lists the paths below a folder that may be checkpoints, newest last by name;
    `named_step` gives the step in such a path's name. `examine` reads one whole, and raises
    `UnusableError`. `description` names the files in messages.
    """

    framework: str
    description: str
    candidates: Callable[[Path], list[Path]]
    named_step: Callable[[Path], int | None]
    examine: Callable[[Path], Examined]


def examined(kind: Kind, place: Path) -> Examined:
    """`kind.examine`, with unexpected errors reported as `UnusableError`.

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
    """A fingerprint of a checkpoint's file names, sizes and times; changes with every write."""
    seen = hashlib.sha256()
    for path in files_of(place):
        status = path.stat()
        name = path.relative_to(place).as_posix()
        seen.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="replace"))
    return seen.hexdigest()[:16]
