"""Finds validation files that a training reads, too: their loss would say nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import open_regular

_BLOCK_BYTES = 1 << 20


def trained_on(training: Iterable[Path], held_out: Iterable[Path]) -> str | None:
    """What is wrong with the first validation file that is one of the training's, or a copy of one.

    Files of one size are compared until they differ.

    Raises:
        OSError: one can't be read.
    """
    by_size: dict[int, list[Path]] = {}
    for path in held_out:
        by_size.setdefault(path.stat().st_size, []).append(path)
    if not by_size:
        return None
    for path in training:
        for other in by_size.get(path.stat().st_size, ()):
            if path.samefile(other):
                return f"{other} is trained on, too"
            if _is_copy(path, other):
                return f"{other} is a copy of {path}, which is trained on"
    return None


def _is_copy(path: Path, other: Path) -> bool:
    with open_regular(path) as file, open_regular(other) as other_file:
        while block := file.read(_BLOCK_BYTES):
            check_reading()
            if block != other_file.read(_BLOCK_BYTES):
                return False
        return not other_file.read(1)
