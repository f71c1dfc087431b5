"""The files of a folder that may travel, as one set: list, digest, diff and upload come from it.

A name is resolved once, to a real path inside the folder and an inode. What is read later is opened
by that path without following a link, so that a folder which became a link brings nothing from
outside.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath

from trainer_runtime.core.files.protected import (
    is_home,
    is_protected,
    names_credentials,
    protected_inodes,
)
from trainer_runtime.core.files.unlinked import UnlinkedPaths, unlinked_paths
from trainmaster.backends.hosts.tree_files import TreeFile, file_at
from trainmaster.calls.work import spend
from trainmaster.home.paths import Home

_GIT = ".git"
_CACHES = frozenset(
    {
        *(_GIT, "__pycache__", ".venv", "venv", "node_modules", ".tox", ".ipynb_checkpoints"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".eggs", "wandb"),
    }
)
_MOST_WALKED = 100_000  # of a whole disk that is named by mistake


@dataclass(frozen=True, slots=True)
class SetFile:
    """`name`: below the folder, with slashes; `real`: where the file lies, a path without links."""

    name: str
    real: str
    status: os.stat_result

    @property
    def size_bytes(self) -> int:
        return self.status.st_size

    @property
    def is_executable(self) -> bool:
        return bool(self.status.st_mode & stat.S_IXUSR)

    def open(self, paths: UnlinkedPaths) -> int:
        """A descriptor for reading.

        Raises:
            OSError: it is not there, or another file is by now.
        """
        descriptor = paths.open(self.real)
        if _inode(os.fstat(descriptor)) != _inode(self.status):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "it was replaced while it was read", self.real)
        return descriptor

    def to_send(self) -> TreeFile:
        return file_at(Path(self.real), self.name, self.status)


@dataclass(frozen=True, slots=True)
class FileSet:
    """`files`, by name, are below `root`, a real path. `secrets`: names of what holds keys, or is
    another name of such a file; `homes`: folders that are homes of Trainmaster. Both stay."""

    root: str
    files: Sequence[SetFile]
    secrets: Sequence[str]
    homes: Sequence[str]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def to_send(self) -> list[TreeFile]:
        return [file.to_send() for file in self.files]


def file_set(folder: Path, home: Home, names: Iterable[str] | None = None) -> FileSet:
    """The regular files of a folder that may travel: of those that are `names`, else of all but
    caches. Links that lead out of it, `.git` and whatever is not a file stay silently.

    `home`: whose keys and settings are known by their inodes, as the user's own are.

    Raises:
        OSError: the folder can't be read.
    """
    root = os.path.realpath(folder)
    chosen = set(islice(_walk(root), _MOST_WALKED) if names is None else names)
    with unlinked_paths() as paths:
        choice = _Choice(root, home, chosen, paths)
        files: list[SetFile] = []
        secrets: list[str] = []
        for name in sorted(chosen):
            spend()
            file = choice.resolve(name)
            if file is None:
                continue
            if choice.is_secret(file):
                secrets.append(name)
            else:
                files.append(file)
    return FileSet(root, files, secrets, sorted(choice.homes))


def real_path_within(root: Path, path: Path) -> Path:
    """Where a file of the folder `root`, a real path, lies once links are followed.

    Raises:
        OSError: that is outside.
    """
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(root):
        raise OSError(errno.EXDEV, "it leads out of the folder", str(path))
    return real


class _Choice:
    """Decides on each name of one folder."""

    def __init__(self, root: str, home: Home, names: Iterable[str], paths: UnlinkedPaths) -> None:
        self._root, self._paths = root, paths
        self._private = [place.resolve() for place in home.private_roots]
        self._inodes: frozenset[tuple[int, int]] | None = None
        top = Path(root)
        above = [*self._private, *(place for place in (top, *top.parents) if is_home(place))]
        self._above = [place for place in above if top.is_relative_to(place)]
        below = {os.path.relpath(place, root) for place in self._private if top in place.parents}
        self.homes = {
            folder for folder in _folders(names) if folder in below or is_home(Path(root, folder))
        }

    def resolve(self, name: str) -> SetFile | None:
        """The regular file that a name leads to inside the folder; None where it leads to none."""
        if not _is_below(name) or self._is_in_home(name):
            return None
        real = f"{self._root}/{name}"
        try:
            status = self._paths.status(real)
            is_link = stat.S_ISLNK(status.st_mode)
        except FileNotFoundError:
            return None
        except OSError:  # a folder on the way is a link
            is_link = True
        try:
            if is_link:
                real = os.path.realpath(real)
                status = self._paths.status(real)
        except OSError:
            return None
        inside = real[len(self._root) + 1 :]
        if not real.startswith(f"{self._root}/") or not _is_below(inside):
            return None
        if not stat.S_ISREG(status.st_mode) or (is_link and self._is_in_home(inside)):
            return None
        return SetFile(name, real, status)

    def is_secret(self, file: SetFile) -> bool:
        """Whether it holds keys, credentials or settings, by its names, its place or its inode."""
        inside = file.real[len(self._root) + 1 :]
        if names_credentials(PurePath(file.name)):
            return True
        if inside != file.name and names_credentials(PurePath(inside)):
            return True
        if self._above and is_protected(Path(file.real), self._above):
            return True
        return _inode(file.status) in self._protected()

    def _is_in_home(self, name: str) -> bool:
        return bool(self.homes) and not self.homes.isdisjoint(_folders([name]))

    def _protected(self) -> frozenset[tuple[int, int]]:
        if self._inodes is None:
            user_home = Path(os.path.expanduser("~"))
            self._inodes = protected_inodes({*self._private, *self._above}, user_home)
        return self._inodes


def _walk(root: str) -> Iterator[str]:
    folders = [""]
    while folders:
        spend()
        folder = folders.pop()
        for entry in _entries(f"{root}/{folder}", is_root=not folder):
            name = f"{folder}/{entry.name}" if folder else entry.name
            if not entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith((".pyc", ".pyo")):
                    yield name
            elif entry.name not in _CACHES:
                folders.append(name)


def _entries(folder: str, *, is_root: bool) -> list[os.DirEntry[str]]:
    """What a folder holds; nothing of one inside that can't be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        if is_root:
            raise
        return []


def _is_below(name: str) -> bool:
    """Whether a name is a plain one, and not of a repository's own files."""
    parts = name.split("/")
    return not any(part in ("", ".", "..") or part.casefold() == _GIT for part in parts)


def _folders(names: Iterable[str]) -> set[str]:
    """All folders that the names lie in."""
    folders: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
