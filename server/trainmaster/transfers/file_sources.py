"""Where a run's files can be read from: its box, or what is mirrored of it here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from trainer_runtime.core.files import listing
from trainer_runtime.core.files.listing import LeftOut, ListedFile
from trainer_runtime.core.protocol.followed_files import is_appended, is_replaced
from trainmaster.backends import Backend, RunFiles

# Of the eight channels of a connection, some stay for what else goes on.
_MOST_READS = 5


class FileSource(Protocol):
    """A run's folder. Paths are relative to it, as in `ListedFile`.

    Raises, each method: `HostError` where the box can't be reached.
    """

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        """What a pattern means there."""

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes; empty at the end."""

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        """The sha256 of a chunk of a file; None where it is not there any more."""


class BoxFiles:
    """The run's folder on its host."""

    def __init__(self, backend: Backend, run_id: str) -> None:
        self._run_files = RunFiles.of(backend)
        self._run_id = run_id
        self._reads = asyncio.Semaphore(_MOST_READS)

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        return await self._run_files.list_files(self._run_id, pattern)

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        async with self._reads:
            return await self._run_files.read_file(self._run_id, path, offset, limit)

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        if file.sha256 is not None:
            return _known(file, chunk)
        async with self._reads:
            return await self._run_files.chunk_digest(
                self._run_id, file.path, chunk, file.size_bytes
            )


class MirroredFiles:
    """What of a run's folder is here. A log of a run with secrets is masked here, and only here."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        found = await asyncio.to_thread(lambda: list(listing.list_files(self._root, pattern)))
        return [item for item in found if is_mirrored(item.path) or _is_brought(item.path)]

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, path, offset, limit)

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        if file.sha256 is not None:
            return _known(file, chunk)
        return await asyncio.to_thread(
            listing.chunk_digest, self._root, file.path, chunk, file.size_bytes
        )

    def _read(self, path: str, offset: int, limit: int) -> bytes:
        try:
            with (self._root / path).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""


def is_mirrored(path: str) -> bool:
    """Whether a file of a run's folder is followed into the mirror."""
    return is_appended(path) or is_replaced(path)


def _is_brought(path: str) -> bool:
    """Whether a file of the mirror came there by itself: a checkpoint's, or the final model's."""
    return path.startswith(("checkpoints/", "final/"))


def _known(file: ListedFile, chunk: int) -> str | None:
    return file.sha256[chunk] if file.sha256 and chunk < len(file.sha256) else None
