"""Refuses what would exceed the quota of downloads and copies of checkpoints in the home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.files.listing import LeftOut, ListedFile
from trainer_runtime.core.protocol.figures import size_text
from trainmaster.errors.errors import StorageError
from trainmaster.home.paths import Home
from trainmaster.home.user_paths import real_path
from trainmaster.store.quota import copies_limit_bytes, copies_quota, copies_used
from trainmaster.transfers.file_sources import FileSource


class CopiesRoom:
    """The room of copies into `folder`; without a limit where that lies outside the home."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home = home
        self._is_limited = real_path(folder).is_relative_to(real_path(home.root))
        self._quota = copies_quota(home)

    def refuse_beyond(self, more_bytes: int) -> None:
        """Raises:
        StorageError: `COPIES_FULL`, so much more has no room.
        """
        if not self._is_limited or not more_bytes:
            return
        folders, limit = copies_used(self._home), copies_limit_bytes(self._home)
        if sum(folders.values()) + more_bytes > limit:
            raise _full(self._home, folders, more_bytes)

    def take(self, more_bytes: int) -> None:
        """Count so much as written; raises as `refuse_beyond`."""
        if self._is_limited and not self._quota.take(more_bytes):
            raise _full(self._home, copies_used(self._home), more_bytes)


class CountedSource:
    """A source whose bytes are counted before each is read: other processes copy meanwhile."""

    def __init__(self, source: FileSource, room: CopiesRoom) -> None:
        self._source, self._room = source, room

    async def files(self, pattern: str) -> Sequence[ListedFile | LeftOut]:
        return await self._source.files(pattern)

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        self._room.take(limit)
        return await self._source.read(path, offset, limit)

    async def digest(self, file: ListedFile, chunk: int) -> str | None:
        return await self._source.digest(file, chunk)


def _full(home: Home, folders: dict[Path, int], more_bytes: int) -> StorageError:
    held, limit = size_text(sum(folders.values())), size_text(copies_limit_bytes(home))
    largest = max(folders, key=lambda place: folders[place], default=None)
    where = "" if largest is None else f", as {largest} ({size_text(folders[largest])})"
    return StorageError(
        "COPIES_FULL",
        f"Downloads and copies of checkpoints in {home.root} take {held}; "
        f"{size_text(more_bytes)} more would exceed mirror.copies_gib ({limit}).",
        f"Remove what nobody needs{where}; or raise mirror.copies_gib in {home.settings}; or fetch "
        "into a folder outside the home.",
        retryable=True,
    )
