"""Many files written through to the disk at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The file system commits what waits together: one by one, hundreds of files took seconds.
_AT_ONCE = 16


def write_files(
    folder: Path, files: Mapping[str, bytes], executable: frozenset[str] = frozenset()
) -> None:
    """Write new files by their names below `folder`, which is made, and have them durable.

    Raises:
        OSError: one of them can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o700 if name in executable else 0o600
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
    make_durable([*(folder / name for name in files), *folders_of(folder)])


def folders_of(folder: Path) -> list[Path]:
    """`folder` and the folders below it."""
    return [Path(place) for place, _, _ in os.walk(folder)]


def make_durable(paths: Iterable[Path | str]) -> None:
    """Have the contents of files, and the names in folders, survive a power cut."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(_sync, paths):
            pass


def _sync(path: Path | str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
