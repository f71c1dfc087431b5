"""Makes the folder that git takes for a repository's: its configuration is ours."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.files.regular import read_regular
from trainer_runtime.core.files.unlinked import open_unlinked, read_unlinked
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.calls.work import spend
from trainmaster.runs.planning.git.isolated import Git, GitError
from trainmaster.runs.planning.git.repository import Repository

_MOST_INDEX_BYTES = 256 << 20
_MOST_CONFIG_BYTES = 1 << 20
_MOST_IGNORED_BYTES = 4 << 20
_BLOCK_BYTES = 1 << 20
_OBJECTS = re.compile(r"pack|[0-9a-f]{2}")
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]{40,64}")
_YES_NO = ("true", "false")
# All that counts of a repository's configuration: how its files lie on this disk.
_TAKEN = {
    "core.filemode": _YES_NO,
    "core.symlinks": _YES_NO,
    "core.ignorecase": _YES_NO,
    "core.autocrlf": (*_YES_NO, "input"),
    "core.eol": ("lf", "crlf", "native"),
    "extensions.objectformat": ("sha1", "sha256"),
}
_CONFIG = """\
[core]
	repositoryformatversion = 1
	bare = false
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
	commitGraph = false
	multiPackIndex = false
	useReplaceRefs = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	bigFileThreshold = 8m
	packedGitWindowSize = 32m
	packedGitLimit = 256m
	fsync = none
[protocol]
	allow = never
[submodule]
	recurse = false
[fastimport]
	unpackLimit = 1
"""


def read_config(git: Git, path: str) -> Mapping[str, str]:
    """The values of a configuration file by lower-case name; what it includes is not read.

    Raises:
        GitError: it is damaged.
    """
    copy = git.scratch / "config-to-read"
    empty = empty_dir(git)
    if not _copy(git, path, copy, _MOST_CONFIG_BYTES):
        return {}
    words = ("config", "--file", str(copy), "--no-includes", "--list", "-z")
    rows = os.fsdecode(git.run(empty, *words)).split("\0")
    return {name.lower(): value for name, _, value in (row.partition("\n") for row in rows)}


def empty_dir(git: Git) -> Path:
    """A repository of ours with nothing in it."""
    folder = git.scratch / "empty"
    if not folder.exists():
        _make(folder, {})
    return folder


def isolated_dir(git: Git, repository: Repository, name: str) -> Path:
    """A repository of ours with the index, ignore rules and objects of `repository`.

    Raises:
        GitError: its index or configuration is damaged, too large, or not a file.
        OSError: the disk is full.
    """
    folder = git.scratch / name
    _make(folder, read_config(git, f"{repository.common}/config"))
    for entry in ("index", *_names(repository.own, _SHARED_INDEX)):
        _copy(git, f"{repository.own}/{entry}", folder / entry, _MOST_INDEX_BYTES)
    borrowed = git.scratch / f"{name}-objects"
    borrowed.mkdir()
    objects = f"{repository.common}/objects"
    for entry in _names(objects, _OBJECTS):
        place = f"{objects}/{entry}"
        if stat.S_ISDIR(os.lstat(place).st_mode):
            _refuse_linked_objects(place)
            (borrowed / entry).symlink_to(place)
    (folder / "objects" / "info" / "alternates").write_text(f"{borrowed}\n")
    ignored = _ignored(git.users_excludes(folder), f"{repository.common}/info/exclude")
    (folder / "info" / "exclude").write_bytes(ignored)
    return folder


def _refuse_linked_objects(folder: str) -> None:
    """Raises: GitError: one leads to a file elsewhere, or to what is none."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                raise GitError(f"{entry.path} is not a regular file")


def _make(folder: Path, config: Mapping[str, str]) -> None:
    for name in ("objects/info", "objects/pack", "refs", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    lines = [_CONFIG]
    for name, values in _TAKEN.items():
        section, _, key = name.partition(".")
        if config.get(name, "").lower() in values:
            lines.append(f"[{section}]\n\t{key} = {config[name].lower()}\n")
    (folder / "config").write_text("".join(lines))


def _ignored(users: str | None, own: str) -> bytes:
    """The rules of the person, which may be a link of theirs, and those of the repository."""
    rules = []
    with suppress(OSError):
        rules.append(read_regular(Path(users), _MOST_IGNORED_BYTES) if users else b"")
    with suppress(OSError), read_unlinked(Path(own)) as file:
        rules.append(file.read(_MOST_IGNORED_BYTES))
    return b"\n".join(rules)


def _names(folder: str, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in os.listdir(folder) if pattern.fullmatch(name)]


def _copy(git: Git, path: str, copy: Path, most_bytes: int) -> bool:
    """Copy a regular file; False where nothing is there.

    Raises:
        StateError: `READ_TOO_LONG`, the call has ended.
        GitError: it is not a regular file, or too large, alone or with what was copied before.
    """
    try:
        descriptor = open_unlinked(Path(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise GitError(f"{path} can't be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as original, copy.open("wb") as target:
        status = os.fstat(descriptor)
        if status.st_size > most_bytes:
            raise GitError(f"{path} is larger than {size_text(most_bytes)}")
        left = status.st_size
        git.room.take(left)
        while block := original.read(min(left, _BLOCK_BYTES)):
            spend()
            target.write(block)
            left -= len(block)
    # By this time git knows which files changed at the same moment as the index was written.
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True
