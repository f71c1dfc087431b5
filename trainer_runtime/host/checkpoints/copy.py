"""Copies a run's checkpoints to another disk of the host: `mirror: host:/path`.

Runs in a process of its own, which the supervisor starts and watches: copying gigabytes must
not hold it up. A checkpoint comes to lie in `<path>/<run_id>/step-…` in one step and whole; until
then it grows as `.writing-step-…`, whose finished files are kept when a kill interrupts it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import (
    MANIFEST_NAME,
    ChunkHasher,
    FileEntry,
    ManifestError,
    read,
)

_PIECE_BYTES = 4 << 20
_WRITING, _OLD = ".writing-", ".old-"


class NotCopiedError(Exception):
    """A checkpoint could not be copied; what is there already stays."""


def main(run: Path, destination: Path, names: list[str]) -> int:
    """Bring `destination` to hold the checkpoints `names` of a run, newest first, and no older ones
    once the newest is there; prints `{"step": NEWEST}`."""
    try:
        step = copy_checkpoints(run / "checkpoints", destination / run.name, names)
    except (NotCopiedError, OSError) as error:
        print(f"mirror: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"step": step}))
    return 0


def copy_checkpoints(source: Path, destination: Path, names: list[str]) -> int | None:
    """The newest step that is whole in `destination` then.

    Raises:
        NotCopiedError: a checkpoint is not what its manifest says.
        OSError: it can't be read or written.
    """
    destination.mkdir(parents=True, exist_ok=True)
    with _locked(destination):
        for name in sorted(names, reverse=True):
            if not (source / name).is_dir():
                continue  # pruned since it was asked for
            if _manifest(destination / name) != _manifest(source / name):
                _copy(source / name, destination / name)
        _prune(destination, names)
        steps = [int(name[5:]) for name in _copied_checkpoints(destination)]
    return max(steps, default=None)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time: a supervisor that was killed may have left its own at work."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _copy(source: Path, place: Path) -> None:
    try:
        manifest = read(source)
    except ManifestError as error:
        raise NotCopiedError(f"{source.name}: {error}") from error
    writing = place.with_name(f"{_WRITING}{place.name}")
    writing.mkdir(exist_ok=True)
    for entry in manifest.files:
        if not _is_done(writing / entry.path, source / entry.path):
            _copy_file(source / entry.path, writing / entry.path, entry)
    shutil.copyfile(source / MANIFEST_NAME, writing / MANIFEST_NAME)
    sync_folder(writing)
    if place.exists():
        _remove(place)
    writing.rename(place)
    sync_folder(place.parent)


def _is_done(target: Path, source: Path) -> bool:
    """Whether a file was copied before, of this very original: its digest was checked then."""
    try:
        status, wanted = target.lstat(), source.lstat()
    except FileNotFoundError:
        return False
    return (status.st_size, status.st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns)


def _copy_file(source: Path, target: Path, entry: FileEntry) -> None:
    part = target.with_name(f".{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    hasher = ChunkHasher()
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as original, part.open("wb") as copy:
        while data := original.read(_PIECE_BYTES):
            hasher.update(data)
            copy.write(data)
        copy.flush()
        os.fsync(copy.fileno())
        status = os.fstat(original.fileno())
    if hasher.entry(entry.path) != entry:
        part.unlink()
        raise NotCopiedError(f"{source.parent.name}/{entry.path} differs from its manifest")
    os.utime(part, ns=(status.st_mtime_ns, status.st_mtime_ns))
    os.replace(part, target)


def _prune(destination: Path, names: list[str]) -> None:
    """Remove what is not wanted any more, once something that is wanted is there."""
    whole = _copied_checkpoints(destination)
    if not set(whole) & set(names):
        return
    for name in whole:
        if name not in names:
            _remove(destination / name)
    for leftover in [*destination.glob(f"{_WRITING}*"), *destination.glob(f"{_OLD}*")]:
        if leftover.name.removeprefix(_WRITING) not in names:
            shutil.rmtree(leftover, ignore_errors=True)


def _copied_checkpoints(destination: Path) -> list[str]:
    names = (path.name for path in destination.glob("step-*"))
    return [name for name in names if name[5:].isdigit() and _manifest(destination / name)]


def _manifest(folder: Path) -> bytes | None:
    """Its bytes where it is one; it holds the digests of everything else."""
    try:
        read(folder)
        return (folder / MANIFEST_NAME).read_bytes()
    except (ManifestError, OSError):
        return None


def _remove(folder: Path) -> None:
    hidden = folder.with_name(f"{_OLD}{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
