"""Finds files for validation that are trained on, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from trainer_runtime.core.files.compression import CompressedFileError, SourceFile, compression_of
from trainer_runtime.core.files.reading import check_reading

_BLOCK_BYTES = 1 << 20
# Of two files that are compared, before all of both is read.
_BEGIN_BYTES = 8 << 10


def trained_on(training: Iterable[Path], held_out: Iterable[Path]) -> str | None:
    """What is wrong with the first validation file that is one of the training's, or a copy of one,
    compressed or not.

    Files of one size, and compressed ones of one decompressed beginning, are compared until they
    differ. A compressed file that is damaged, or that this machine can't decompress, equals none.

    Raises:
        OSError: one can't be read.
    """
    others = list(held_out)
    if not others:
        return None
    by_size = _grouped(others, lambda path: path.stat().st_size)
    has_compressed = any(compression_of(path) is not None for path in others)
    by_begin: Mapping[object, list[Path]] | None = None
    for path in training:
        alike = by_size.get(path.stat().st_size, [])
        if has_compressed or compression_of(path) is not None:
            by_begin = by_begin or _grouped(others, _begin)
            alike = [*alike, *by_begin.get(_begin(path), ())]
        for other in dict.fromkeys(alike):
            if path.samefile(other):
                return f"{other} is trained on, too"
            if _is_copy(path, other):
                return f"{other} is a copy of {path}, which is trained on"
    return None


def _grouped(paths: Iterable[Path], key: Callable[[Path], object]) -> dict[object, list[Path]]:
    groups: dict[object, list[Path]] = {}
    for path in paths:
        groups.setdefault(key(path), []).append(path)
    return groups


def _begin(path: Path) -> object:
    """A digest of what the file begins with, decompressed; of its own where nobody can."""
    check_reading()
    try:
        with SourceFile(path) as opened:
            return sha256(opened.text.read(_BEGIN_BYTES)).digest()
    except (CompressedFileError, ImportError):
        return path


def _is_copy(path: Path, other: Path) -> bool:
    try:
        with SourceFile(path) as file, SourceFile(other) as other_file:
            while block := file.text.read(_BLOCK_BYTES):
                check_reading()
                if block != other_file.text.read(_BLOCK_BYTES):
                    return False
            return not other_file.text.read(1)
    except (CompressedFileError, ImportError):
        return False
