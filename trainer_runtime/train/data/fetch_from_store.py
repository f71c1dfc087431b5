"""Downloads a source's objects from a store into a folder that keeps partial downloads.

`python -m trainer_runtime.train.data.fetch_from_store REQUEST`, started by `host.prepare.inputs`:
exactly the objects of the plan, refused where one has changed since. Without a list of the plan's
the objects are listed here, once, and the list is kept in the folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer_runtime.core.config import InputConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.inputs.hub_dataset import NotInDatasetError
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.data.fetch_progress import progress, size_bytes
from trainer_runtime.train.data.source_objects import objects_of_source
from trainer_runtime.train.data.stored_objects import StoredObject, StoredObjects, StoreError

LISTING = ".objects.json"
_PIECE_BYTES = 8 << 20
_AT_ONCE = 8
_NOT_NOW = 1


class ChangedError(Exception):
    """An object is not what it was when it was listed."""


def main(request_path: str) -> int:
    """Fetch the objects of a request. Returns 77 for permanent failures, 1 for temporary ones.

    An interrupted fetch is resumed as long as every try makes progress.
    """
    document = decode_fields(
        Path(request_path).read_bytes(), "request", max_bytes=MAX_DOCUMENT_BYTES
    )
    request = InputConfig.of(document)
    address = StoreAddress.find(str(request.store))
    if address is None:
        print(f"{request.store} is not an address of an object store", flush=True)
        return ExitCode.UNUSABLE
    folder = Path(request.folder)
    while True:
        before = size_bytes(folder)
        try:
            _fetch(request, address)
            return 0
        except StoreError as error:
            print(error, flush=True)
            if error.obstacle.is_for_good:
                return ExitCode.UNUSABLE
        except (ChangedError, NotInDatasetError) as error:
            print(f"{address}: {error}", flush=True)
            return ExitCode.UNUSABLE
        if size_bytes(folder) <= before:
            return _NOT_NOW


def _fetch(request: InputConfig, address: StoreAddress) -> None:
    stored, folder = StoredObjects(address), Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    root, objects = objects_of_source(stored, request.format)
    there = {item.name: item for item in objects}
    planned = _planned(request, folder, objects)
    _refuse_changed(planned, there)
    total = sum(item.size_bytes for item in planned)
    with progress(request.what, folder, total), ThreadPoolExecutor(_AT_ONCE) as pool:
        tasks = [
            pool.submit(_fetch_object, stored, root.below(item.name), folder / item.name, item)
            for item in planned
        ]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    # What was replaced meanwhile may be of two versions.
    _, objects = objects_of_source(stored, request.format)
    _refuse_changed(planned, {item.name: item for item in objects})


def _planned(
    request: InputConfig, folder: Path, objects: Sequence[StoredObject]
) -> list[StoredObject]:
    """The plan's objects, or those that the host was the first to list."""
    if request.files:
        return [
            StoredObject(name, size, etag)
            for (name, size), etag in zip(request.files, request.etags, strict=True)
        ]
    kept = folder / LISTING
    if kept.exists():
        rows = decode_fields(kept.read_bytes(), LISTING, max_bytes=MAX_DOCUMENT_BYTES)
        return [
            StoredObject(row.text("name"), row.integer("size_bytes"), row.text("etag"))
            for row in rows.rows("objects", "name", "size_bytes", "etag")
        ]
    listed = [[item.name, item.size_bytes, item.etag] for item in objects]
    write_atomic(kept, json.dumps({"objects": listed}).encode())
    return list(objects)


def _refuse_changed(planned: Sequence[StoredObject], there: Mapping[str, StoredObject]) -> None:
    for item in planned:
        now = there.get(item.name)
        if now is None:
            raise ChangedError(f"{item.name} is not there any more; plan again")
        if (now.size_bytes, now.etag) != (item.size_bytes, item.etag):
            raise ChangedError(
                f"{item.name} changed since it was listed: {item.size_bytes:,} bytes with ETag "
                f"{item.etag}, now {now.size_bytes:,} with {now.etag}; plan again"
            )


def _fetch_object(
    stored: StoredObjects, address: StoreAddress, target: Path, item: StoredObject
) -> None:
    """Append what is missing of an object, piece by piece, and put it into its place."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    with part.open("ab") as file:
        while (have := file.seek(0, os.SEEK_END)) < item.size_bytes:
            piece = stored.read(address, have, min(have + _PIECE_BYTES, item.size_bytes))
            if not piece or have + len(piece) > item.size_bytes:
                raise ChangedError(f"{item.name} has another length than it was listed with")
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.utime(part, ns=(0, 0))
    part.replace(target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
