"""Writes a folder of tensors and JSON so that it is either there, whole, or not there at all.

Files go to `.writing-<name>-<pid>` beside the folder's place, hashed as they are written, the
manifest last; each is flushed to the disk, then the folder is renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import (
    MANIFEST_NAME,
    ChunkHasher,
    FileEntry,
    Manifest,
    build,
    flushed_entry,
)
from trainer_runtime.train.checkpoints.tensors import write_tensors

WRITING_PREFIX = ".writing-"
OLD_PREFIX = ".old-"
ASIDE_PREFIX = ".superseded-"
_READ_BYTES = 1024 * 1024


def write_folder(
    folder: Path,
    tensors: Mapping[str, Mapping[str, Tensor]],
    documents: Mapping[str, Mapping[str, Any]],
    manifest: Manifest,
    before_commit: Callable[[], None],
    *,
    others: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Puts `<name>.safetensors`, `<name>.json` and `others` under `folder`; the whole manifest.

    `manifest` comes without files. What stood at `folder` before is replaced. `before_commit` is
    called when everything but the manifest is on the disk.

    Raises:
        OSError: it can't be written; nothing is left behind, and what was there still is.
    """
    writing = folder.parent / f"{WRITING_PREFIX}{folder.name}-{os.getpid()}"
    shutil.rmtree(writing, ignore_errors=True)
    try:
        writing.mkdir(parents=True)
        files = []
        for name, part in tensors.items():
            with _HashedFile(writing / f"{name}.safetensors") as file:
                write_tensors(file.write, part)
                files.append(file.finished())
        for name, document in documents.items():
            with _HashedFile(writing / f"{name}.json") as file:
                file.write(_json(document))
                files.append(file.finished())
        for name, content in (others or {}).items():
            with _HashedFile(writing / name) as file:
                file.write(memoryview(content))
                files.append(file.finished())
        complete = dataclasses.replace(manifest, files=tuple(files))
        before_commit()
        with _HashedFile(writing / MANIFEST_NAME) as file:
            file.write(memoryview(build(complete)))
            file.finished()
        sync_folder(writing)
        _put_in_place(writing, folder)
    except BaseException:
        shutil.rmtree(writing, ignore_errors=True)
        raise
    return complete


def seal_folder(
    written: Path, folder: Path, manifest: Manifest, before_commit: Callable[[], None]
) -> Manifest:
    """Makes a checkpoint of a folder that a framework wrote beside: digests, manifest, its place.

    Every file below `written` is hashed and flushed to the disk; links and what stood at `folder`
    are replaced as in `write_folder`. Who may read a new file, by the process's umask, may read
    each: safetensors makes its own with mode 0600. The manifest as written.

    Raises:
        OSError: it can't be done; `written` stays where it is, without a manifest.
    """
    (written / MANIFEST_NAME).unlink(missing_ok=True)
    paths = sorted(path for path in written.rglob("*") if path.is_file())
    entries = tuple(flushed_entry(written, path) for path in paths)
    for inner in {path.parent for path in paths}:
        sync_folder(inner)
    complete = dataclasses.replace(manifest, files=entries)
    before_commit()
    with _HashedFile(written / MANIFEST_NAME) as file:
        file.write(memoryview(build(complete)))
        file.finished()
    _open_as(written / MANIFEST_NAME, paths)
    sync_folder(written)
    _put_in_place(written, folder)
    return complete


def remove_folder(folder: Path) -> None:
    """Renames a folder atomically, then removes it. A missing folder is ignored."""
    hidden = folder.parent / f"{OLD_PREFIX}{folder.name}-{os.getpid()}"
    try:
        folder.rename(hidden)
    except FileNotFoundError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Removes what killed writers left."""
    for prefix in (WRITING_PREFIX, OLD_PREFIX):
        for leftover in parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)


def set_aside(folder: Path) -> Path | None:
    """A second name for a folder that is to be replaced, under which it outlives that; None where
    it does not exist. Its files are linked, or moved where the disk has no links.

    Raises:
        OSError: neither can be done.
    """
    aside = folder.parent / f"{ASIDE_PREFIX}{folder.name}"
    if not folder.exists():
        return None
    shutil.rmtree(aside, ignore_errors=True)
    try:
        shutil.copytree(folder, aside, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    sync_folder(folder.parent)
    return aside


def put_back(aside: Path, folder: Path) -> None:
    """What was set aside stands at `folder` again, instead of what stands there."""
    remove_folder(folder)
    aside.rename(folder)
    sync_folder(folder.parent)


def settle_set_aside(parent: Path, is_whole: Callable[[Path], bool]) -> None:
    """Ends the replacements that killed writers left: by the new folder where it is whole."""
    for aside in parent.glob(f"{ASIDE_PREFIX}*"):
        folder = parent / aside.name.removeprefix(ASIDE_PREFIX)
        if is_whole(folder):
            shutil.rmtree(aside, ignore_errors=True)
        else:
            put_back(aside, folder)


def drop_from_page_cache(folder: Path) -> None:
    """Lets the next read of the folder's files come from the disk, as far as the system agrees."""
    for file in (path for path in folder.rglob("*") if path.is_file()):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class _HashedFile:
    """A new file whose digests are taken while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._hasher = ChunkHasher()

    def __enter__(self) -> _HashedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, data: memoryview) -> None:
        self._hasher.update(data)
        while len(data):
            data = data[self._file.write(data) :]

    def finished(self) -> FileEntry:
        """Puts the file on the disk; its entry in the manifest."""
        os.fsync(self._file.fileno())
        return self._hasher.entry(self._path.name)


def _open_as(pattern: Path, paths: Sequence[Path]) -> None:
    """Files that lack permissions of the new file `pattern` get them; none loses any.

    What a link leads to is left alone. Reading the umask itself would change it for all threads.
    """
    wanted = stat.S_IMODE(pattern.stat().st_mode)
    for path in paths:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & wanted != wanted and not path.is_symlink():
            path.chmod(mode | wanted)


def _json(document: Mapping[str, Any]) -> memoryview:
    return memoryview(json.dumps(document, allow_nan=False).encode() + b"\n")


def _put_in_place(writing: Path, folder: Path) -> None:
    hidden = folder.parent / f"{OLD_PREFIX}{folder.name}-{os.getpid()}"
    if folder.exists():
        folder.rename(hidden)
    writing.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(hidden, ignore_errors=True)
