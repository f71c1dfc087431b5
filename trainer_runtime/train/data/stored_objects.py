"""Lists, reads and writes the objects of a store by fsspec: `s3://`, `gs://`, `az://`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from trainer_runtime.core.inputs.object_store import MOST_OBJECTS, StoreAddress

_REFUSED, _MISSING = (401, 403), (404,)
# Of the clients' errors about keys that nobody has given, the names.
_NO_KEYS = ("NoCredentials", "PartialCredentials", "DefaultCredentials", "NoAuth", "TokenRetrieval")
_LONGEST_REASON = 200


class Obstacle(Enum):
    """Why a store doesn't give what it is asked for."""

    NO_PACKAGE = "no package"
    NO_KEYS = "no keys"
    REFUSED = "refused"
    MISSING = "missing"
    UNREACHABLE = "unreachable"

    @property
    def is_for_good(self) -> bool:
        return self is not Obstacle.UNREACHABLE


class StoreError(Exception):
    """A store doesn't give what it is asked for; the message says why, and the remedy."""

    def __init__(self, obstacle: Obstacle, message: str) -> None:
        super().__init__(message)
        self.obstacle = obstacle


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`name`: below the address that was listed, or its own where the address is the object's."""

    name: str
    size_bytes: int
    etag: str


class StoredObjects:
    """The objects below an address; its errors are all `StoreError`."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        with self._explained():
            self.files = _file_system(address)

    def list(self) -> tuple[StoreAddress, list[StoredObject]]:
        """What the objects' names are relative to, and the objects, by name.

        Raises:
            StoreError: the bucket or everything in it is missing or refused.
        """
        objects = self._find()
        if not objects:
            raise StoreError(Obstacle.MISSING, f"{self.address}: nothing lies under this key")
        if len(objects) > MOST_OBJECTS:
            raise StoreError(
                Obstacle.MISSING,
                f"{self.address}: it holds {len(objects):,} objects, more than {MOST_OBJECTS:,}; "
                "name a prefix that holds fewer",
            )
        root = self.address
        if list(objects) == [root.path]:
            root = StoreAddress(root.scheme, root.bucket, root.key.rpartition("/")[0])
        return root, _relative(root, objects)

    def below(self) -> dict[str, StoredObject]:
        """The objects below the address by name; none where there are none yet.

        Raises:
            StoreError: the bucket is missing or refused.
        """
        return {item.name: item for item in _relative(self.address, self._find())}

    def _find(self) -> dict[str, dict[str, Any]]:
        path = self.address.path
        with self._explained():
            if self.address.key:
                with suppress(FileNotFoundError):
                    info = self.files.info(path)
                    if info["type"] == "file":
                        return {path: info}
            details = self.files.find(path, detail=True)
            if not details:
                self.files.ls(self.address.bucket)  # raises where the bucket is missing
                return {}
        return {name: info for name, info in details.items() if info["type"] == "file"}

    def read(self, address: StoreAddress, start: int, end: int) -> bytes:
        """A part of an object."""
        with self._explained():
            content: bytes = self.files.cat_file(address.path, start=start, end=end)
            return content

    def content(self, name: str) -> bytes:
        """Of a small object below the address."""
        with self._explained():
            content: bytes = self.files.cat_file(self.address.below(name).path)
            return content

    def put(self, file: Path, name: str) -> None:
        """Upload a file, in place of what has this name."""
        options = {"overwrite": True} if self.address.scheme == "az" else {}
        with self._explained():
            self.files.put_file(str(file), self.address.below(name).path, **options)

    def write(self, name: str, content: bytes) -> None:
        """Write a small object, in place of what has this name."""
        with self._explained():
            self.files.pipe_file(self.address.below(name).path, content)

    def remove(self, name: str) -> None:
        with self._explained():
            self.files.rm_file(self.address.below(name).path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # those of the store's own client, whichever that is
            raise _explanation(self.address, error) from None


def _file_system(address: StoreAddress) -> Any:
    import fsspec

    make: Any = partial(fsspec.filesystem, address.scheme)
    options: dict[str, Any] = {}
    if address.scheme == "gs":
        # Not what the registry has: that asks a second API, of which nothing is read here.
        from gcsfs.core import GCSFileSystem

        make = GCSFileSystem
        key = os.environ.get("GOOGLE_CREDENTIALS")
        if os.environ.get("STORAGE_EMULATOR_HOST"):
            options["token"] = "anon"
        elif key:
            options["token"] = json.loads(key)
    elif address.scheme == "az":
        options["anon"] = False
    else:
        options["config_kwargs"] = {"connect_timeout": 10, "retries": {"max_attempts": 2}}
    return make(use_listings_cache=False, skip_instance_cache=True, **options)


def _relative(root: StoreAddress, objects: dict[str, dict[str, Any]]) -> list[StoredObject]:
    prefix = f"{root.path}/"
    return sorted(
        (
            StoredObject(path.removeprefix(prefix), int(info["size"] or 0), _etag(info))
            for path, info in objects.items()
            if path.startswith(prefix)
        ),
        key=lambda listed: listed.name,
    )


def _etag(info: dict[str, Any]) -> str:
    return str(info.get("ETag") or info.get("etag") or info.get("mtime") or "").strip('"')


def _explanation(address: StoreAddress, error: Exception) -> StoreError:
    store, bucket = address.store, f"{address.scheme}://{address.bucket}"
    if isinstance(error, ImportError):
        message = f"{address}: reading it takes the package {store.package}"
        return StoreError(Obstacle.NO_PACKAGE, message)
    listed = f"list {' and '.join(store.keys)} under secrets"
    if any(name in type(error).__name__ for name in _NO_KEYS):
        return StoreError(Obstacle.NO_KEYS, f"{address}: no keys for {store.title}; {listed}")
    status = _status(error)
    reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
    if isinstance(error, PermissionError) or status in _REFUSED:
        return StoreError(
            Obstacle.REFUSED,
            f"{bucket} refuses these keys ({reason}); {listed} with the right to list and read it",
        )
    if isinstance(error, FileNotFoundError) or status in _MISSING:
        return StoreError(
            Obstacle.MISSING,
            f"{address}: the bucket or object was not found ({reason}); check the name and the "
            "endpoint",
        )
    return StoreError(
        Obstacle.UNREACHABLE, f"{store.title} could not be asked for {address}: {reason}"
    )


def _status(error: BaseException) -> int | None:
    """The HTTP status of an error of the store's client."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    for name in ("status_code", "status", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
            return int(value)
    return None
