"""What is done of a folder of shards, so that a preparation that was killed can be resumed.

`progress.json` holds the sources that are done, as `meta.json` describes them, and how far the
present one is. It is written after what it describes is on the disk: a shard may be longer, and its
rest is cut again. One process at a time cuts into a folder, also where one outlives its starter.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, JsonRecord, decode_fields
from trainer_runtime.core.files.durable import write_atomic

_JOURNAL = "progress.json"
_LOCK = "progress.lock"
# Raised when the same sources are cut in another way, so that two ways are never in one shard.
_VERSION = 1
# Of the time that a preparation takes, the part that its journal may take.
_SHARE_OF_TIME = 0.02


@dataclass(frozen=True, slots=True)
class Place(JsonRecord):
    """How far a source is cut: the pieces of it that were read, and the documents and tokens that
    were written."""

    pieces: int = 0
    documents: int = 0
    tokens: int = 0

    def after(self, pieces: int, documents: int, tokens: int) -> Place:
        """The place when so many more are read and written."""
        return Place(self.pieces + pieces, self.documents + documents, self.tokens + tokens)


class Journal:
    """The journal of one folder, by the only process that cuts into it; to be used by `with`."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        """Wait for an earlier process that still cuts into `folder`; read what it has done.

        Raises:
            OSError: the folder can't be read or written.
        """
        self._path = folder / _JOURNAL
        self._lock = (folder / _LOCK).open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for the end of an earlier preparation of the same data")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._done: dict[str, Mapping[str, object]] = {}
        self._source, self._place = "", Place()
        self._read()
        self._kept_s = time.monotonic()
        self._cost_s = 0.0

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def done(self, source: str) -> Mapping[str, object] | None:
        """What `finish` was given for a source; None where it is not done."""
        return self._done.get(source)

    def place(self, source: str) -> Place:
        """How far a source is cut that is not done."""
        return self._place if self._source == source else Place()

    def keep(self, source: str, place: Place, *shards: BinaryIO) -> None:
        """Record how far a source is written into its shards, unless that was done just before."""
        begun_s = time.monotonic()
        if (begun_s - self._kept_s) * _SHARE_OF_TIME < self._cost_s:
            return
        for shard in shards:
            sync(shard)
        self._source, self._place = source, place
        self._write()
        self._kept_s = time.monotonic()
        self._cost_s = self._kept_s - begun_s

    def finish(self, source: str, described: Mapping[str, object]) -> None:
        """Record that a source is done; its shards are on the disk."""
        self._done[source] = described
        self._write()

    def _read(self) -> None:
        """Nothing where it is damaged, or of another version."""
        try:
            written = decode_fields(self._path.read_bytes(), _JOURNAL, max_bytes=MAX_DOCUMENT_BYTES)
            if written.integer("v") != _VERSION:
                return
            place, source = Place.of(written.section("place")), written.text("source")
            done = written.sections("done")
            self._done = {described.text("name"): described.values for described in done}
            self._source, self._place = source, place
        except (FileNotFoundError, ValueError):
            return

    def _write(self) -> None:
        document = {
            "v": _VERSION,
            "done": list(self._done.values()),
            "source": self._source,
            "place": self._place.to_dict(),
        }
        write_atomic(self._path, json.dumps(document).encode())


def remove_journal(folder: Path) -> None:
    """Remove it from shards that are whole, with what a kill has left of it."""
    for name in (_JOURNAL, _LOCK):
        (folder / name).unlink(missing_ok=True)
    for leftover in folder.glob(f".{_JOURNAL}.*"):
        leftover.unlink()


def holds(shard: Path, size_bytes: int) -> bool:
    """Whether a shard has at least the bytes that a journal records of it."""
    return size_bytes == 0 or (shard.is_file() and shard.stat().st_size >= size_bytes)


def open_shard(shard: Path, size_bytes: int = 0) -> BinaryIO:
    """A shard that is continued after so many bytes, which it holds; what comes after is dropped.

    Raises:
        OSError: it can't be written.
    """
    opened = shard.open("ab")
    opened.truncate(size_bytes)
    return opened


def sync(shard: BinaryIO) -> None:
    """Write through to the disk."""
    shard.flush()
    os.fsync(shard.fileno())
