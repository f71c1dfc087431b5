"""The place of a file below a folder, whose inner folders are created and are no links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer_runtime.core.files.private import share
from trainmaster.errors.errors import StorageError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def place_below(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The target of a file, its folders created.

    The path goes through the opened folder: a link that takes the place of one of the folders
    meanwhile leads nowhere.
    """
    descriptor = os.open(folder, _FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for depth, part in enumerate(parts[:-1], start=1):
            inner = _open_inner(descriptor, part, folder / "/".join(parts[:depth]), folder)
            os.close(descriptor)
            descriptor = inner
        target = Path(f"/proc/self/fd/{descriptor}", parts[-1])
        if target.is_dir() and not target.is_symlink():
            raise StorageError(
                "UNSAFE_NAME",
                f"{folder.joinpath(*parts)} is a folder, and a file of that name is to be fetched.",
                "Fetch into another folder.",
            )
        yield target
    finally:
        os.close(descriptor)


def _open_inner(above: int, name: str, shown_path: Path, folder: Path) -> int:
    """A folder in an opened one, created where it is missing."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
        _share_folder(above, name)
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=above)
    except OSError:
        if not stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise
        raise StorageError(
            "UNSAFE_NAME",
            f"{shown_path} is a symbolic link; what is fetched stays below {folder}.",
            "Remove the link, or fetch into another folder.",
        ) from None


def _share_folder(above: int, name: str) -> None:
    descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=above)
    try:
        share(descriptor)
    finally:
        os.close(descriptor)
