"""Sources of a run's files: its host, or the local mirror."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from trainer_runtime.core.files import listing
from trainer_runtime.core.files.listing import LeftOut, ListedFile
from trainer_runtime.core.protocol.followed_files import is_appended, is_replaced
from trainmaster.backends import Backend, RunFiles

# Of the eight channels of a connection, some stay free for other calls.
_MOST_READS = 5


class FileSource(Protocol):
    """A run's folder. Paths are relative to it, as in `ListedFile`.

    Raises, each method: `HostError` where the host can't be reached.
    """

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        """The files that match a pattern."""

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes; empty at the end."""

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        """The sha256 of a chunk of a file; None where the file no longer has it."""


class HostFiles:
    """The run's folder on its host."""

    def __init__(self, backend: Backend, run_id: str) -> None:
        self._run_files = RunFiles.of(backend, run_id=run_id)
        self._run_id = run_id
        self._reads = asyncio.Semaphore(_MOST_READS)

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        return await self._run_files.list_files(self._run_id, pattern)

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        async with self._reads:
            return await self._run_files.read_file(self._run_id, path, offset, limit)

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        if file.sha256 is not None:
            return _chunk_digest(file, chunk)
        async with self._reads:
            return await self._run_files.chunk_digest(
                self._run_id, file.path, chunk, file.size_bytes
            )


class MirroredFiles:
    """The part of a run's folder that is here. Logs of a run with secrets are masked only here."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        items = await asyncio.to_thread(lambda: list(listing.list_files(self._root, pattern)))
        return [item for item in items if is_mirrored(item.path) or _is_brought(item.path)]

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, path, offset, limit)

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        if file.sha256 is not None:
            return _chunk_digest(file, chunk)
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
    """Whether a transfer copied a file of the mirror: a checkpoint's, or the final model's."""
    return path.startswith(("checkpoints/", "final/"))


def _chunk_digest(file: ListedFile, chunk: int) -> str | None:
    return file.sha256[chunk] if file.sha256 and chunk < len(file.sha256) else None
