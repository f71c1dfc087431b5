"""Private data sets at Kaggle: entries of a host's cache, and a run's secrets.

A session mounts one data set per cache entry: `<kind>/<entry>/…`, and next to it `complete.json`
with the contents of `.complete`, if that marks the entry as complete. A data set's name is a digest
of its contents: it is sent once and found by later runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.files.durable import write_synced
from trainer_runtime.core.files.unlinked import read_unlinked
from trainer_runtime.core.kaggle.session_order import CACHE_MARK
from trainmaster.backends.hosts.tree_files import TreeFile, changed
from trainmaster.backends.kaggle.client import Kaggle
from trainmaster.errors.errors import CloudError
from trainmaster.home.paths import Home

_DIGITS = 32
_CHUNK_BYTES = 1 << 20
# Weights don't compress.
_DENSE = (".safetensors", ".gguf", ".parquet")
_READY = "ready"


class Datasets:
    """The data sets of one account; safe for concurrent processes."""

    def __init__(self, home: Home, kaggle: Kaggle) -> None:
        self._home, self._kaggle = home, kaggle

    async def put(self, place: str, files: Sequence[TreeFile], *, mark: bool = False) -> str:
        """The data set with a cache entry, `owner/slug`; uploaded if it does not exist.

        `place`: the entry's path in the cache, such as `data/<fingerprint>`; `files`: by their
        names in it; `mark`: whether `.complete` marks the entry.

        Raises:
            CloudError: `KAGGLE_…`.
            PlanError: `DATA_CHANGED`, a file has changed since it was listed.
            OSError: a file can't be read.
        """
        marker = _marker(files) if mark else None
        slug = await asyncio.to_thread(_slug, place, files, marker)
        if await self._kaggle.finished_dataset(slug) == _READY:
            return f"{await self._kaggle.account()}/{slug}"
        with self._folder() as folder:
            await asyncio.to_thread(_pack, folder, place, files, marker)
            ref = await self._send(slug, folder)
        try:
            _refuse_changed(files)
        except Exception:
            await self._kaggle.remove_dataset(slug)
            raise
        return ref

    async def put_secrets(self, run_id: str, generation: int, files: Mapping[str, bytes]) -> str:
        """Upload a run's secrets for a request as a data set, `owner/slug`; `remove_secrets`
        removes it.

        Raises:
            CloudError: `KAGGLE_…`.
        """
        slug = f"{_secrets_of(run_id)}{generation}"
        note = self._home.kaggle_secret(
            slug
        )  # recorded first, so that it can be removed after a kill
        write_synced(note, b"", 0o600)
        if await self._kaggle.finished_dataset(slug) == _READY:
            return f"{await self._kaggle.account()}/{slug}"
        with self._folder() as folder:
            for name, data in files.items():
                write_synced(folder / name, data, 0o600)
            return await self._send(slug, folder)

    async def remove_secrets(self, run_id: str, *, but: int | None = None) -> bool:
        """Remove a run's secrets for all requests `but` one; True if there were any. Idempotent.

        Raises:
            CloudError: `KAGGLE_…`; the next call removes the rest.
        """
        begin = _secrets_of(run_id)
        notes = sorted(self._home.kaggle_secret(begin).parent.glob(f"{begin}*"))
        due = [note for note in notes if note.name != f"{begin}{but}"]
        for note in due:
            await self._kaggle.remove_dataset(note.name)
            note.unlink(missing_ok=True)
        return bool(due)

    async def _send(self, slug: str, folder: Path) -> str:
        try:
            return await self._kaggle.put_dataset(slug, slug, folder)
        except CloudError as error:
            # Another process was first, or the request arrived twice.
            if error.code != "KAGGLE_REFUSED":
                raise
            if await self._kaggle.finished_dataset(slug) != _READY:
                raise
        return f"{await self._kaggle.account()}/{slug}"

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = new_folder(self._home)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _slug(place: str, files: Sequence[TreeFile], marker: bytes | None) -> str:
    digest = hashlib.sha256(json.dumps([place, (marker or b"").decode()]).encode())
    for file in sorted(files, key=lambda tree_file: tree_file.name):
        digest.update(json.dumps([file.name, file.size_bytes, _sha256(file)]).encode())
    return f"tm-{digest.hexdigest()[:_DIGITS]}"


def _sha256(file: TreeFile) -> str:
    if isinstance(file.source, bytes):
        return hashlib.sha256(file.source).hexdigest()
    with read_unlinked(file.source) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _secrets_of(run_id: str) -> str:
    """The prefix of a run's data sets with secrets; a generation follows."""
    return f"tm-s-{hashlib.sha256(run_id.encode()).hexdigest()[:24]}-"


def _marker(files: Sequence[TreeFile]) -> bytes:
    """The contents of `.complete` for these files, as the upload to a host writes it."""
    rows = json.dumps([[file.name, file.size_bytes, file.modified_ns] for file in files])
    digest = hashlib.sha256(rows.encode()).hexdigest()
    return f'{{"digest": "{digest}", "files": {rows}}}\n'.encode()


def _pack(folder: Path, place: str, files: Sequence[TreeFile], marker: bytes | None) -> None:
    """Write the data set's files: an archive, which Kaggle unpacks into a folder of its name."""
    kind, _, entry = place.partition("/")
    with zipfile.ZipFile(folder / f"{kind}.zip", "w", compresslevel=1) as archive:
        for file in files:
            info = zipfile.ZipInfo(
                f"{entry}/{file.name}"
            )  # without mtime: zip can't store years before 1980
            is_dense = file.name.endswith(_DENSE)
            info.compress_type = zipfile.ZIP_STORED if is_dense else zipfile.ZIP_DEFLATED
            info.file_size = file.size_bytes
            with archive.open(info, "w") as packed, _opened(file) as stream:
                shutil.copyfileobj(stream, packed, _CHUNK_BYTES)
    if marker is not None:
        write_synced(folder / CACHE_MARK, marker)


def _opened(file: TreeFile) -> BinaryIO:
    return io.BytesIO(file.source) if isinstance(file.source, bytes) else read_unlinked(file.source)


def _refuse_changed(files: Sequence[TreeFile]) -> None:
    """Raises: `PlanError`: `DATA_CHANGED`."""
    for file in files:
        if isinstance(file.source, Path):
            status = file.source.stat()
            if (status.st_size, status.st_mtime_ns) != (file.size_bytes, file.modified_ns):
                raise changed(file, "changed")


def new_folder(home: Home) -> Path:
    """Create an empty folder with mode 0700; removes those of ended processes."""
    parent = home.kaggle_clients
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in parent.iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
