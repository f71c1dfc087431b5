"""Which files of a run's folder a pattern means, and their digests: what a fetch goes by.

Symbolic links are never followed: what is listed lies in the folder. The digests are the
manifest's: one sha256 per 64 MiB, so that every part of a file can be checked by itself.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.files.manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    ChunkHasher,
    FileEntry,
    ManifestError,
    read,
)
from trainer_runtime.core.files.protected import is_protected

_READ_BYTES = 1 << 20
# Beyond these, the client asks for each chunk's digest after the download: a listing stays fast.
_LARGEST_HASHED_BYTES = CHUNK_BYTES
_MOST_HASHED_BYTES = 1 << 30
# Secrets, locks, what is being written or removed just now, and compressed parts of other files.
_NEVER = re.compile(
    r"\.[^/]*|(?:[^/]+/)*\.(?:writing|old|superseded)-[^/]*(?:/.*)?|(?:[^/]+/)*\.[^/]*\.part"
    r"|(?:[^/]+/)*[^/]+\.jsonl\.compacted(?:/.*)?"
    r"|(?:[^/]+/)*[^/]+\.log\.(?:beginning|newest)"  # nobody masks them
)
# Why something is left out; what follows, the words of a system, is not passed on.
_REASONS = re.compile(
    r"is never fetched|is a symbolic link, which is not followed|was not understood"
    r"|is not a regular file, or can't be read"
    r"|its name holds characters that are not safe|can't be read"
    rf"|is damaged: \d{{1,16}} bytes instead of the \d{{1,16}} in {re.escape(MANIFEST_NAME)}"
)
# No file system has a larger one, and no clock is further from 1970 (in 1823 and 2116).
LARGEST_FILE_BYTES = 1 << 53
_FARTHEST_NS = 1 << 62
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ListedFile(JsonRecord):
    """One file; `sha256` is None where nobody has computed it yet."""

    path: str
    size_bytes: int = field(metadata={"key": "size"})
    mtime_ns: int
    sha256: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class LeftOut(JsonRecord):
    """Something that the pattern means and that is not fetched."""

    path: str = field(metadata={"key": "skipped"})
    reason: str


def parse_listed(row: Any) -> ListedFile | LeftOut:
    """A row of another machine's list, from its `to_dict`; one that makes no sense is left out by
    name. Paths are not to be trusted: they are checked where they are used."""
    try:
        if "skipped" in row:
            return LeftOut(str(row["skipped"]), _known_reason(str(row["reason"])))
        size, mtime_ns, digests = row["size"], row["mtime_ns"], row["sha256"]
        _check_number(size, 0, LARGEST_FILE_BYTES)
        _check_number(mtime_ns, -_FARTHEST_NS, _FARTHEST_NS)
        listed = None if digests is None else tuple(map(str, digests))
        if listed is not None and len(listed) != count_chunks(size):
            raise ValueError("sizes that don't fit")
        return ListedFile(str(row["path"]), size, mtime_ns, listed)
    except (KeyError, TypeError, ValueError):
        return LeftOut(ascii(row)[:200], "was not understood")


def _known_reason(reason: str) -> str:
    """Another machine's reason, if it is one of ours; without the words of its system."""
    match = _REASONS.match(reason)
    return match.group() if match else "is left out by its host"


def _check_number(value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError("a number out of range")


def count_chunks(size_bytes: int) -> int:
    """How many digests a file of this size has."""
    return -(-size_bytes // CHUNK_BYTES)


def list_files(root: Path, pattern: str) -> Iterator[ListedFile | LeftOut]:
    """What `pattern` means below `root`, by name.

    `*`, `?` and `[…]` stand for parts of one name, `**` for any number of folders; a folder that
    the pattern means is meant with all that is in it.
    """
    yield from _Listing(root, _parts(pattern)).of("")


def chunk_digest(root: Path, path: str, chunk: int, size_bytes: int) -> str | None:
    """The sha256 of a chunk of the first `size_bytes` of a file; None where it has less."""
    if is_never_fetched(path) or ".." in path.split("/"):
        return None
    descriptor = _open(root, path)
    if descriptor is None:
        return None
    try:
        left = min(CHUNK_BYTES, size_bytes - chunk * CHUNK_BYTES)
        hasher, offset = hashlib.sha256(), chunk * CHUNK_BYTES
        while left > 0:
            data = os.pread(descriptor, min(_READ_BYTES, left), offset)
            if not data:
                return None
            hasher.update(data)
            left, offset = left - len(data), offset + len(data)
        return hasher.hexdigest()
    finally:
        os.close(descriptor)


def is_meant(pattern: str, path: str) -> bool:
    """Whether `pattern` means this path, or a folder above it."""
    return _means(_parts(pattern), path.split("/")) and not is_never_fetched(path)


def is_never_fetched(path: str) -> bool:
    return _NEVER.fullmatch(path) is not None


class _Listing:
    def __init__(self, root: Path, pattern: Sequence[str]) -> None:
        self._root = root
        self._pattern = pattern
        self._hashed_bytes = 0

    def of(self, folder: str) -> Iterator[ListedFile | LeftOut]:
        try:
            entries = sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            yield LeftOut(folder or ".", f"can't be read: {error.strerror}")
            return
        manifest = self._manifest(folder)
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            yield from self._entry(path, entry, manifest)

    def _entry(
        self, path: str, entry: os.DirEntry[str], manifest: dict[str, FileEntry]
    ) -> Iterator[ListedFile | LeftOut]:
        parts = path.split("/")
        is_meant = _means(self._pattern, parts)
        if not is_meant and not _may_mean_below(self._pattern, parts):
            return
        if is_never_fetched(path):
            if parts == list(self._pattern):
                yield LeftOut(path, "is never fetched")
        elif _UNSAFE.search(entry.name):
            yield LeftOut(ascii(path)[1:-1], "its name holds characters that are not safe")
        elif entry.is_symlink():
            if is_meant or entry.is_dir():
                yield LeftOut(path, "is a symbolic link, which is not followed")
        elif entry.is_dir(follow_symlinks=False):
            yield from self.of(path)
        elif is_meant:
            yield self._file(path, manifest.get(path))

    def _manifest(self, folder: str) -> dict[str, FileEntry]:
        """The folder's own manifest's files, by their path below the root."""
        try:
            files = read(self._root / folder).files
        except ManifestError:
            return {}
        return {f"{folder}/{file.path}" if folder else file.path: file for file in files}

    def _file(self, path: str, recorded: FileEntry | None) -> ListedFile | LeftOut:
        descriptor = _open(self._root, path)
        if descriptor is None:
            return LeftOut(path, "is not a regular file, or can't be read")
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            if recorded is not None and recorded.size_bytes != size:
                difference = f"{size} bytes instead of the {recorded.size_bytes} in {MANIFEST_NAME}"
                return LeftOut(path, f"is damaged: {difference}")
            digests = recorded.sha256 if recorded else self._digests(descriptor, size)
            return ListedFile(path, size, status.st_mtime_ns, digests)
        except OSError as error:
            return LeftOut(path, f"can't be read: {error.strerror}")
        finally:
            os.close(descriptor)

    def _digests(self, descriptor: int, size_bytes: int) -> tuple[str, ...] | None:
        """Of the first `size_bytes`, which a file that grows may have outgrown by now."""
        if size_bytes > _LARGEST_HASHED_BYTES:
            return None
        if self._hashed_bytes + size_bytes > _MOST_HASHED_BYTES:
            return None
        self._hashed_bytes += size_bytes
        hasher = ChunkHasher()
        while left := size_bytes - hasher.size_bytes:
            data = os.read(descriptor, min(_READ_BYTES, left))
            if not data:
                break
            hasher.update(data)
        return hasher.entry("").sha256


def _parts(pattern: str) -> list[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    # One after another they mean what one means, and cost more each time.
    return [
        part
        for part, after in zip(parts, [*parts, ""][1:], strict=True)
        if (part, after) != ("**", "**")
    ]


def _means(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the pattern means this path, or a folder above it."""
    if not pattern:
        return True
    if pattern[0] == "**":
        rest = pattern[1:]
        if not rest:
            return bool(parts)
        return any(_means(rest, parts[start:]) for start in range(len(parts)))
    return (
        bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _means(pattern[1:], parts[1:])
    )


def _may_mean_below(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the pattern may mean something in this folder."""
    if not parts:
        return bool(pattern)
    if not pattern:
        return False
    if pattern[0] == "**":
        return True
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _may_mean_below(pattern[1:], parts[1:])


def _open(root: Path, path: str) -> int | None:
    """A regular file, with no link on the way to it from `root`; None where it is none."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    *parents, name = path.split("/")
    try:
        for parent in parents:
            inner = os.open(parent, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        return None
    finally:
        os.close(folder)
    opened = Path(f"/proc/self/fd/{descriptor}")
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and not is_protected(opened, [root]):
        return descriptor
    os.close(descriptor)
    return None
