"""Finds the repository of a folder, and reads its HEAD: by descriptor, bounded, no link followed.

`.git` counts if it is this folder's: a real folder here, or one elsewhere that names this folder.
Else a `.git` that somebody sent could have another repository's content shown.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.regular import read_opened
from trainer_runtime.core.files.unlinked import open_unlinked
from trainmaster.runs.planning.git.isolated import GitError

_SHORT_BYTES = 4096
_PACKED_BYTES = 64 << 20
_MOST_REFS = 5
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REFERENCE = re.compile(r"refs(?:/(?!\.)[^/\0]+)+")
_OF_WORKTREE = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")

# A repository's configuration file -> its values by lower-case name.
ReadConfig = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Repository:
    """Real paths: `worktree` of its files, `own` of HEAD and index, `common` of objects, references
    and configuration. The last two differ for a linked worktree."""

    worktree: str
    own: str
    common: str

    def head(self) -> str | None:
        """The commit of HEAD; None before the first one, or where it can't be read."""
        name, text = "HEAD", _text(f"{self.own}/HEAD")
        for _ in range(_MOST_REFS):
            if text is None:
                text = self._packed(name)
            if not text.startswith("ref: "):
                return text if _COMMIT.fullmatch(text) else None
            name = text.removeprefix("ref: ")
            if not _REFERENCE.fullmatch(name):
                return None
            place = self.own if name.startswith(_OF_WORKTREE) else self.common
            text = _text(f"{place}/{name}")
        return None

    def _packed(self, name: str) -> str:
        packed = _text(f"{self.common}/packed-refs", _PACKED_BYTES) or ""
        match = re.search(rf"^([0-9a-f]+) {re.escape(name)}$", packed, re.MULTILINE)
        return match[1] if match else ""


def repository_place(folder: str) -> str | None:
    """The nearest folder, this one or above, with a `.git` of its owner or ours."""
    owners = {os.geteuid(), os.stat(folder).st_uid}
    for place in (folder, *map(str, Path(folder).parents)):
        status = _status(f"{place}/.git")
        if status is None or status.st_uid not in owners:
            continue
        if not stat.S_ISDIR(status.st_mode) or _is_regular(f"{place}/.git/HEAD"):
            return place
    return None


def repository_at(
    place: str, read_config: ReadConfig, outer: Repository | None = None
) -> Repository:
    """The repository whose `.git` lies in `place`; `outer`: whose submodule it is.

    Raises:
        GitError: it isn't a repository of this folder.
    """
    git = f"{place}/.git"
    status = _status(git)
    if status is not None and stat.S_ISDIR(status.st_mode):
        return _checked(Repository(place, git, git))
    if status is None or not stat.S_ISREG(status.st_mode):
        raise GitError(f"{git} is neither a folder nor a file that names one")
    text = _text(git) or ""
    if not text.startswith("gitdir: "):
        raise GitError(f"{git} is neither a folder nor a file that names one")
    own = os.path.realpath(os.path.join(place, text.removeprefix("gitdir: ")))
    shared = _text(f"{own}/commondir")
    common = own if shared is None else os.path.realpath(os.path.join(own, shared))
    repository = _checked(Repository(place, own, common))
    worktrees = _worktrees(repository, read_config) if outer is None else ()
    is_outers = outer is not None and common == own and _is_within(own, outer)
    if not is_outers and not any(os.path.realpath(worktree) == place for worktree in worktrees):
        raise GitError(f"{git} leads to {own}, which is not of this folder")
    return repository


def _checked(repository: Repository) -> Repository:
    if not _is_regular(f"{repository.own}/HEAD") or not _is_folder(f"{repository.common}/objects"):
        raise GitError(f"{repository.own} is not a repository, or has links in place of its files")
    return repository


def _worktrees(repository: Repository, read_config: ReadConfig) -> Iterator[str]:
    """The folders of files that a repository names as its own."""
    if repository.own != repository.common:
        back = _text(f"{repository.own}/gitdir")
        if back is not None and os.path.dirname(repository.own) == f"{repository.common}/worktrees":
            yield os.path.dirname(os.path.join(repository.own, back))
        return
    worktree = read_config(f"{repository.common}/config").get("core.worktree")
    if worktree is not None:
        yield os.path.join(repository.own, worktree)


def _is_within(own: str, outer: Repository) -> bool:
    return own.startswith((f"{outer.own}/modules/", f"{outer.common}/modules/"))


def _text(path: str, most_bytes: int = _SHORT_BYTES) -> str | None:
    """A file's text without the line end; None where no regular file of that size is there."""
    try:
        data = read_opened(open_unlinked(Path(path)), most_bytes)
    except OSError:
        return None
    return os.fsdecode(data).rstrip("\n") if len(data) <= most_bytes else None


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _is_regular(path: str) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _is_folder(path: str) -> bool:
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)
