"""A run's checkpoints in an object store: `checkpoint.mirror: s3://bucket/prefix`.

A step is `<prefix>/<run_id>/step-…/`, as on a host. Its manifest is uploaded last and removed
first, so that a step with a manifest is whole; one whose objects have other sizes than the manifest
says doesn't count either. `.uploading-step-….json` names what of a step is there already.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import sync_folder
from trainer_runtime.core.files.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestError,
    file_problem,
    parse,
    read,
)
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.train.data.stored_objects import StoredObject, StoredObjects

_PIECE_BYTES = 8 << 20
_UPLOADING, _WRITING = ".uploading-", ".writing-"
_TRIAL = ".writable"


class NotWholeError(Exception):
    """A checkpoint is not what its manifest says, here or in the store."""


class StoredCheckpoints:
    """Those of one run; `address`: the mirror's, with the run's id."""

    def __init__(self, address: StoreAddress) -> None:
        """Raises: StoreError: the store's package is missing."""
        self._stored = StoredObjects(address)
        self._address = address

    def try_writing(self) -> None:
        """Raises: StoreError: nothing can be written there."""
        self._stored.write(_TRIAL, b"")
        self._stored.remove(_TRIAL)

    def steps(self) -> list[int]:
        """Those that are whole, by their manifests and the sizes of their objects."""
        objects = self._stored.below()
        return sorted(int(name[5:]) for name in _names(objects) if self._whole(name, objects))

    def upload(self, source: Path, names: Collection[str]) -> None:
        """Upload the checkpoints of a folder by name, newest first; then remove all others, if one
        of these is there.

        Raises:
            NotWholeError: a checkpoint differs from its manifest.
            StoreError: the store refuses them, or can't be reached.
        """
        for name in sorted(names, reverse=True):
            if (source / name).is_dir():  # else pruned since it was asked for
                self._put(source / name)
        objects = self._stored.below()
        if not any(self._whole(name, objects) for name in names):
            return
        for name in _names(objects):
            if name not in names:
                self._remove(name, objects)

    def download(self, target: Path, steps: Sequence[int]) -> int:
        """Bring the first of the steps that is whole in the store into a folder; which one.

        Raises:
            NotWholeError: none is, or one arrives with other digests.
            StoreError: the store refuses them, or can't be reached.
            OSError: it can't be written.
        """
        objects = self._stored.below()
        for step in steps:
            name = f"step-{step:08d}"
            manifest = self._whole(name, objects)
            if manifest is not None and manifest.step == step:
                self._get(name, manifest, target)
                return step
        whole = ", ".join(str(int(name[5:])) for name in _names(objects)) or "none"
        raise NotWholeError(
            f"{self._address} has none of the steps {', '.join(map(str, steps))}, but {whole}"
        )

    def _put(self, source: Path) -> None:
        try:
            manifest, content = read(source), (source / MANIFEST_NAME).read_bytes()
        except ManifestError as error:
            raise NotWholeError(f"{source.name}: {error}") from error
        objects = self._stored.below()
        if self._manifest(source.name, objects) == content:
            return
        done = self._uploaded(source.name, content, objects)
        if f"{source.name}/{MANIFEST_NAME}" in objects:  # that step was saved again
            self._stored.remove(f"{source.name}/{MANIFEST_NAME}")
        for entry in manifest.files:
            if entry.path in done:
                continue
            problem = file_problem(source, entry)
            if problem is not None:
                raise NotWholeError(f"{source.name}/{problem}")
            self._stored.put(source / entry.path, f"{source.name}/{entry.path}")
            done.append(entry.path)
            self._note(source.name, content, done)
        self._refuse_other_sizes(source.name, manifest)
        self._stored.write(f"{source.name}/{MANIFEST_NAME}", content)
        self._stored.remove(f"{_UPLOADING}{source.name}.json")

    def _uploaded(self, name: str, manifest: bytes, objects: Collection[str]) -> list[str]:
        """The files of a checkpoint that an interrupted upload has brought there."""
        note = f"{_UPLOADING}{name}.json"
        if note not in objects:
            return []
        with suppress(ValueError):
            fields = decode_fields(self._stored.content(note), note, max_bytes=MAX_DOCUMENT_BYTES)
            if fields.find_text("manifest") == hashlib.sha256(manifest).hexdigest():
                return [path for path in fields.texts("files") if f"{name}/{path}" in objects]
        return []

    def _note(self, name: str, manifest: bytes, done: Sequence[str]) -> None:
        note = {"manifest": hashlib.sha256(manifest).hexdigest(), "files": list(done)}
        self._stored.write(f"{_UPLOADING}{name}.json", json.dumps(note).encode())

    def _refuse_other_sizes(self, name: str, manifest: Manifest) -> None:
        problem = _size_problem(name, manifest, self._stored.below())
        if problem is not None:
            self._stored.remove(f"{_UPLOADING}{name}.json")
            raise NotWholeError(f"{self._address}: {problem}")

    def _whole(self, name: str, objects: dict[str, StoredObject]) -> Manifest | None:
        content = self._manifest(name, objects)
        try:
            manifest = None if content is None else parse(content)
        except ManifestError:
            return None
        if manifest is None or _size_problem(name, manifest, objects) is not None:
            return None
        return manifest

    def _manifest(self, name: str, objects: Collection[str]) -> bytes | None:
        key = f"{name}/{MANIFEST_NAME}"
        return self._stored.content(key) if key in objects else None

    def _remove(self, name: str, objects: Collection[str]) -> None:
        """The manifest first: what is left of it doesn't count."""
        keys = [key for key in objects if key.startswith(f"{name}/")]
        for key in sorted(keys, key=lambda key: (not key.endswith(f"/{MANIFEST_NAME}"), key)):
            self._stored.remove(key)

    def _get(self, name: str, manifest: Manifest, target: Path) -> None:
        writing = target / f"{_WRITING}{name}"
        writing.mkdir(parents=True, exist_ok=True)
        for entry in manifest.files:
            place = writing / entry.path
            if file_problem(writing, entry) is None:
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            print(f"fetching the checkpoint {name}: {entry.path}", flush=True)
            with place.open("wb") as file:
                for piece in self._pieces(f"{name}/{entry.path}", entry.size_bytes):
                    file.write(piece)
            problem = file_problem(writing, entry)
            if problem is not None:
                shutil.rmtree(writing)
                raise NotWholeError(f"{self._address}/{name}: {problem}")
        (writing / MANIFEST_NAME).write_bytes(self._stored.content(f"{name}/{MANIFEST_NAME}"))
        sync_folder(writing)
        writing.rename(target / name)
        sync_folder(target)

    def _pieces(self, key: str, size_bytes: int) -> Iterator[bytes]:
        address = self._address.below(key)
        for start in range(0, size_bytes, _PIECE_BYTES):
            yield self._stored.read(address, start, min(start + _PIECE_BYTES, size_bytes))


def _names(objects: Collection[str]) -> list[str]:
    """The names of steps of which anything is there."""
    names = {key.partition("/")[0] for key in objects}
    return sorted(name for name in names if name.startswith("step-") and name[5:].isdigit())


def _size_problem(name: str, manifest: Manifest, objects: dict[str, StoredObject]) -> str | None:
    for entry in manifest.files:
        there = objects.get(f"{name}/{entry.path}")
        if there is None or there.size_bytes != entry.size_bytes:
            size = "is missing" if there is None else f"has {there.size_bytes:,} bytes"
            return f"{name}/{entry.path} {size}, not {entry.size_bytes:,}"
    return None
