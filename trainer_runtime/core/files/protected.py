"""Files with keys, secrets or settings of Trainmaster: nothing shows, copies or trains on them.

Both sides ask here before they read a path that somebody named as a log, as data, as a spec or to
be fetched. A file is known by where it lies once links are resolved, whatever its case, and by its
inode where it has several names.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

# In any folder: a run's, the host's or the mirror's.
_FILES = frozenset({".secrets.json", ".alerts.json"})
_IN_HOME = frozenset({"settings.yaml", "secrets.env", "keys", "secrets", "kaggle-secrets"})
_HOME_MARK = "control.db"
_REASON = "it holds secrets, keys or settings of Trainmaster"


class ProtectedError(PermissionError):
    """A file that is never read for others."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EACCES, _REASON, str(path))


def is_protected(path: Path, homes: Iterable[Path] = ()) -> bool:
    """Whether a path leads to such a file, or into such a folder.

    `homes`: homes and roots of hosts that are known; others are known by their databases. Files
    with several names are compared with those in `homes`.
    """
    known = [home.resolve() for home in homes]
    return _lies_protected(path.resolve(), known) or _is_linked(path, known)


def refuse_protected(path: Path, homes: Iterable[Path] = ()) -> None:
    """Raises:
    ProtectedError: `path` leads to such a file.
    """
    if is_protected(path, homes):
        raise ProtectedError(path)


def open_unprotected(path: Path, flags: int = 0, homes: Iterable[Path] = ()) -> int:
    """A descriptor for reading; what was opened is checked, not what the path led to before.

    Raises:
        ProtectedError: it is such a file.
        OSError: it can't be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    opened = Path(f"/proc/self/fd/{descriptor}")
    if is_protected(opened, homes) or is_protected(path, homes):
        os.close(descriptor)
        raise ProtectedError(path)
    return descriptor


def _lies_protected(place: Path, known: Iterable[Path]) -> bool:
    if any(part.casefold() in _FILES for part in place.parts):
        return True
    homes = {*known, *(folder for folder in place.parents if _is_home(folder))}
    for home in homes:
        within = place.relative_to(home).parts if place.is_relative_to(home) else ()
        if within and within[0].casefold() in _IN_HOME:
            return True
    return False


def _is_home(folder: Path) -> bool:
    return (folder / _HOME_MARK).is_file()


def _is_linked(path: Path, homes: Iterable[Path]) -> bool:
    """Whether it is another name (a hard link) of a protected file of these homes."""
    try:
        status = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
        return False
    return any(_is_same(status, file) for home in homes for file in _protected_files(home))


def _protected_files(home: Path) -> Iterator[Path]:
    """Those of a home, of a host's root, or of one run's folder."""
    for name in _IN_HOME:
        yield from ((home / name).rglob("*") if (home / name).is_dir() else (home / name,))
    for name in _FILES:
        yield home / name
        for runs in ("runs", "local/runs", "debug/runs"):
            yield from (home / runs).glob(f"*/{name}")


def _is_same(status: os.stat_result, file: Path) -> bool:
    try:
        return os.path.samestat(status, file.lstat())
    except OSError:
        return False
