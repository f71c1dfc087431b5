"""A checkpoint's manifest: the list of its files with their digests, written last.

A folder is a checkpoint only when its `manifest.json` parses and every listed file has the size and
the digests that stand there. The manifest ends in the sha256 of its own bytes with that value
blank, so a flipped bit in it is seen as well as one in a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, Fields, decode_fields
from trainer_runtime.core.files.reading import check_reading
from trainer_runtime.core.files.regular import READING, read_regular
from trainer_runtime.core.protocol.lines import finite_or_named, number

FORMAT_VERSION = 1
OLDEST_FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
CHUNK_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_LARGEST_MANIFEST_BYTES = 64 * 1024 * 1024
_DIGEST_AT_END = re.compile(rb'"digest":"([0-9a-f]{64})"\}\n?\Z')


class ManifestError(ValueError):
    """A manifest that is missing, torn, changed, or of a version that is not read here."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a checkpoint. `path` is relative to the folder; one sha256 per 64 MiB chunk."""

    path: str
    size_bytes: int
    sha256: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds. `time_s` is in Unix seconds."""

    step: int
    attempt: int
    time_s: float
    metrics: Mapping[str, float]
    tags: tuple[str, ...]
    config_sha256: str
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class ChunkHasher:
    """The digests of a stream, one per 64 MiB, taken while it is written."""

    __slots__ = ("_current", "_digests", "_in_chunk", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._digests: list[str] = []
        self._current = hashlib.sha256()
        self._in_chunk = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self.size_bytes += len(view)
        while len(view):
            part = view[: CHUNK_BYTES - self._in_chunk]
            self._current.update(part)
            self._in_chunk += len(part)
            view = view[len(part) :]
            if self._in_chunk == CHUNK_BYTES:
                self._end_chunk()

    def entry(self, path: str) -> FileEntry:
        """The stream so far as a file of the manifest. An empty stream has no chunk."""
        digests = list(self._digests)
        if self._in_chunk:
            digests.append(self._current.hexdigest())
        return FileEntry(path, self.size_bytes, tuple(digests))

    def _end_chunk(self) -> None:
        self._digests.append(self._current.hexdigest())
        self._current = hashlib.sha256()
        self._in_chunk = 0


def build(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json`.

    Raises:
        ManifestError: a file's path leads out of the folder.
    """
    for file in manifest.files:
        _refuse_unsafe(file.path)
    blank = json.dumps(
        {
            "v": FORMAT_VERSION,
            "step": manifest.step,
            "attempt": manifest.attempt,
            "time": manifest.time_s,
            "metrics": finite_or_named(dict(manifest.metrics)),
            "tags": list(manifest.tags),
            "config_sha256": manifest.config_sha256,
            "files": [
                {"path": file.path, "size": file.size_bytes, "sha256": list(file.sha256)}
                for file in manifest.files
            ],
            "digest": "",
        },
        separators=(",", ":"),
        allow_nan=False,
    ).encode()
    digest = hashlib.sha256(blank + b"\n").hexdigest().encode()
    return blank[: -len(b'"}')] + digest + b'"}\n'


def parse(data: bytes) -> Manifest:
    """The manifest in these bytes, its own digest checked.

    Raises:
        ManifestError: the bytes are torn or changed, of another version, or not of this shape.
    """
    match = _DIGEST_AT_END.search(data)
    if match is None:
        raise ManifestError("manifest.json is torn or is not a manifest")
    blank = data[: match.start(1)] + data[match.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != match.group(1):
        raise ManifestError("manifest.json differs from its own digest")
    try:
        fields = decode_fields(data, MANIFEST_NAME, max_bytes=MAX_DOCUMENT_BYTES)
    except DecodingError as error:
        raise ManifestError(str(error)) from None
    version = fields.values.get("v")
    if not isinstance(version, int) or not OLDEST_FORMAT_VERSION <= version <= FORMAT_VERSION:
        raise ManifestError(f"manifest.json has format version {version!r}, not read here")
    try:
        return _manifest(fields)
    except ValueError as error:
        raise ManifestError(f"manifest.json lacks or misshapes a field: {error}") from None


def read(folder: Path) -> Manifest:
    """The manifest of a checkpoint's folder, without checking its other files.

    Raises:
        ManifestError: it is missing, unreadable, torn or changed.
    """
    file = folder / MANIFEST_NAME
    try:
        data = read_regular(file, _LARGEST_MANIFEST_BYTES)
        if len(data) > _LARGEST_MANIFEST_BYTES:
            raise ManifestError("manifest.json is too large to be one")
        return parse(data)
    except FileNotFoundError:
        reason = "manifest.json is missing" if folder.is_dir() else "the folder does not exist"
        raise ManifestError(reason) from None
    except OSError as error:
        raise ManifestError(f"manifest.json can't be read: {error.strerror}") from None


def verify(folder: Path) -> list[str]:
    """What is wrong with a checkpoint; empty when every byte is as it was written.

    Reads every listed file whole. Files that the manifest does not list are no problem.
    """
    try:
        manifest = read(folder)
    except ManifestError as error:
        return [str(error)]
    problems = (file_problem(folder, file) for file in manifest.files)
    return [problem for problem in problems if problem is not None]


def file_problem(folder: Path, entry: FileEntry) -> str | None:
    """What is wrong with one file of a checkpoint; None where every byte is as it was written."""
    try:
        descriptor = os.open(folder / entry.path, READING | os.O_NOFOLLOW)
    except FileNotFoundError:
        return f"{entry.path}: missing"
    except OSError as error:
        return f"{entry.path}: can't be opened: {error.strerror}"
    try:
        return _content_problem(descriptor, entry)
    except OSError as error:
        return f"{entry.path}: can't be read: {error.strerror}"
    finally:
        os.close(descriptor)


def _manifest(fields: Fields) -> Manifest:
    files = tuple(
        FileEntry(file.text("path"), file.integer("size"), file.texts("sha256"))
        for file in fields.sections("files")
    )
    for file in files:
        _refuse_unsafe(file.path)
    numbers = {key: number(value) for key, value in fields.open_map("metrics").items()}
    return Manifest(
        step=fields.integer("step"),
        attempt=fields.integer("attempt"),
        time_s=fields.time("time"),
        metrics={key: value for key, value in numbers.items() if value is not None},
        tags=fields.texts("tags"),
        config_sha256=fields.text("config_sha256"),
        files=files,
    )


def flushed_entry(folder: Path, path: Path) -> FileEntry:
    """The entry of a finished file in `folder`, once its bytes are on the disk."""
    hasher = ChunkHasher()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while data := file.read(_READ_BYTES):
            hasher.update(data)
    return hasher.entry(path.relative_to(folder).as_posix())


def _refuse_unsafe(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
        raise ManifestError(f"manifest.json names {path!r}, which is not inside its folder")


def _content_problem(descriptor: int, entry: FileEntry) -> str | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return f"{entry.path}: not a regular file"
    if status.st_size != entry.size_bytes:
        return f"{entry.path}: {status.st_size} bytes instead of {entry.size_bytes}"
    hasher = ChunkHasher()
    while data := os.read(descriptor, _READ_BYTES):
        check_reading()
        hasher.update(data)
    digests = hasher.entry(entry.path).sha256
    if len(digests) != len(entry.sha256):
        return f"{entry.path}: {len(digests)} chunks instead of {len(entry.sha256)}"
    for index, (digest, expected) in enumerate(zip(digests, entry.sha256, strict=True)):
        if digest != expected:
            return f"{entry.path}: chunk {index} differs"
    return None
