"""Files with keys, secrets or settings of Trainmaster: nothing shows, copies or trains on them.

Both sides ask here before they read a path that somebody named as a log, as data, as a spec or to
be fetched. A file is known by where it lies once links are resolved, whatever its case, and by its
inode where it has several names. The names of other programs' credentials are here too: an agent
may not name them, and no folder of texts contains them.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePath

# In any folder: a run's, the host's or the mirror's.
_FILES = frozenset({".secrets.json", ".alerts.json"})
_SECRETS = "secrets.env"
_KEPT_IN_HOME = ("keys", "secrets", "kaggle-secrets", "settings.yaml", "mcp-tokens.json")
_IN_HOME = frozenset({*_KEPT_IN_HOME, _SECRETS})
_HOME_MARK = "control.db"
_REASON = "it holds secrets, keys or settings of Trainmaster"
_REPLACED = "it was replaced by a link while it was opened"
_MOST_CREDENTIALS = 10_000  # of one folder

# Names of files, and consecutive parts of a path wherever they stand in it. Lower case: some disks
# ignore it.
_CREDENTIAL_FILES = frozenset(
    {
        *(".netrc", "_netrc", ".pgpass", ".git-credentials", ".pypirc", ".npmrc", ".boto"),
        *(".s3cfg", ".envrc", ".vault-token", ".dockercfg", ".htpasswd", _SECRETS, *_FILES),
        *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "kaggle.json"),
        *(_HOME_MARK, f"{_HOME_MARK}-wal", f"{_HOME_MARK}-shm"),
    }
)
# `.env` and what frameworks and editors make of it: `.env.local`, `.env~`; templates hold none.
_ENV = re.compile(r"\.env(?!\.(?:example|sample|template|dist|defaults?)$)(?:[.~_-].*)?")
_CREDENTIAL_FOLDERS = (
    *((name,) for name in (".ssh", ".aws", ".azure", ".kube", ".gnupg", ".kaggle", ".oci")),
    *((name,) for name in (".huggingface", ".password-store")),
    *((".config", name) for name in ("gcloud", "gh", "huggingface", "kaggle", "op", "rclone")),
    (".docker", "config.json"),
    (".cache", "huggingface", "token"),
    (".cache", "huggingface", "stored_tokens"),
    (".local", "share", "keyrings"),
    ("library", "keychains"),
    # Homes of Trainmaster in their usual places.
    *((home, name) for home in ("trainmaster", ".trainmaster") for name in _KEPT_IN_HOME),
)


class ProtectedError(PermissionError):
    """A file that is never read for others."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EACCES, _REASON, str(path))


def is_protected(path: Path, homes: Iterable[Path] = ()) -> bool:
    """Whether a path leads to such a file, or into such a folder.

    `homes`: homes and roots of hosts that are known; others are known by their databases. Files
    with several names are compared with those in `homes`.
    """
    own_homes = [_real(home) for home in homes]
    return _lies_protected(_real(path), own_homes) or _is_linked(path, own_homes)


def refuse_protected(path: Path, homes: Iterable[Path] = ()) -> None:
    """Raises:
    ProtectedError: `path` leads to such a file.
    """
    if is_protected(path, homes):
        raise ProtectedError(path)


def open_unprotected(
    path: Path, flags: int = 0, homes: Iterable[Path] = (), *, real: Path | None = None
) -> int:
    """A descriptor for reading; what was opened is checked, not what the path led to before.

    `real`: where the path led when it was checked; None where nobody did.

    Raises:
        ProtectedError: it is such a file.
        OSError: it can't be opened, or leads elsewhere than `real` by now.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    opened = Path(f"/proc/self/fd/{descriptor}")
    if is_protected(opened, homes) or is_protected(path, homes):
        os.close(descriptor)
        raise ProtectedError(path)
    if real is not None and _opened_path(descriptor) not in (None, os.path.abspath(real)):
        os.close(descriptor)
        raise OSError(errno.ELOOP, _REPLACED, str(path))
    return descriptor


def protected_inodes(homes: Iterable[Path], user_home: Path) -> frozenset[tuple[int, int]]:
    """Device and inode of each such file of these homes, and of the user's keys and credentials: by
    them another name (a hard link) of one is known, wherever it lies."""
    files = [file for home in homes for file in (*_protected_files(home), *_databases(home))]
    files += [user_home / name for name in (".env", *_CREDENTIAL_FILES)]
    for parts in _CREDENTIAL_FOLDERS:
        place = user_home.joinpath(*parts)
        files += islice(place.rglob("*"), _MOST_CREDENTIALS) if place.is_dir() else (place,)
    return frozenset(inode for file in files for inode in _inode(file))


def names_credentials(path: PurePath) -> bool:
    """Whether a path, on whatever machine, is by its name one of keys or credentials."""
    parts = tuple(part.casefold() for part in path.parts)
    name = (parts[-1:] or ("",))[0]
    return (
        name in _CREDENTIAL_FILES
        or _ENV.fullmatch(name) is not None
        or any(
            parts[start : start + len(names)] == names
            for names in _CREDENTIAL_FOLDERS
            for start in range(len(parts) - len(names) + 1)
        )
    )


def is_home(folder: Path) -> bool:
    """Whether a folder is a home of Trainmaster, by its database."""
    return (folder / _HOME_MARK).is_file()


def home_around(path: Path) -> Path | None:
    """The home of Trainmaster, this one or another, that a path lies in, even if it was never
    opened yet."""
    for folder in (path, *path.parents):
        if any(os.path.exists(folder / name) for name in (_HOME_MARK, _SECRETS)):
            return folder
    return None


def _opened_path(descriptor: int) -> str | None:
    """The kernel's name of an open file; None where it gives none."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


def _real(path: Path) -> Path:
    """Where it leads; links in a loop lead to themselves."""
    return Path(os.path.realpath(path))


def _lies_protected(place: Path, own_homes: Iterable[Path]) -> bool:
    if any(part.casefold() in _FILES for part in place.parts):
        return True
    homes = {*own_homes, *(folder for folder in place.parents if is_home(folder))}
    for home in homes:
        within = place.relative_to(home).parts if place.is_relative_to(home) else ()
        if within and within[0].casefold() in _IN_HOME:
            return True
    return False


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


def _databases(home: Path) -> Iterator[Path]:
    yield from (home / f"{_HOME_MARK}{ending}" for ending in ("", "-wal", "-shm"))


def _inode(file: Path) -> Iterator[tuple[int, int]]:
    """Of a regular file; nothing where there is none."""
    try:
        status = file.stat()
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield status.st_dev, status.st_ino


def _is_same(status: os.stat_result, file: Path) -> bool:
    try:
        return os.path.samestat(status, file.lstat())
    except OSError:
        return False
