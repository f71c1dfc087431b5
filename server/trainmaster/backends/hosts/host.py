"""The port of a machine: files, commands and streams, over any transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from trainmaster.backends.ssh import Completed, Stream


class Host(Protocol):
    """A machine. Paths are absolute, as text, in the machine's own terms.

    Every method may be repeated. Each raises `HostError` where the machine refuses
    (`ROOT_NOT_WRITABLE`, `DISK_FULL`) or can't be reached (`HOST_UNREACHABLE`, `LINK_LOST`).
    """

    name: str

    async def root(self) -> str:
        """The folder that holds runs, absolute."""

    async def cache(self) -> str:
        """The folder that runs share, absolute."""

    async def python(self) -> str:
        """The interpreter (3.10 or newer) that runs the runtime, absolute.

        Raises:
            HostError: `PYTHON_MISSING`.
        """

    async def runtime(self) -> str:
        """A folder of the machine that holds `trainer_runtime` as it is here: the working folder of
        its commands that belong to no run. Puts nothing there: where the machine has no such
        folder, `run` and `stream` take what this gives, and send the runtime along."""

    async def place_runtime(self) -> str:
        """The same, put there if need be: what acts spares those who read the sending, and what
        lives on there needs it."""

    async def run(
        self, command: Sequence[str], *, folder: str, timeout_s: float, stdin: bytes = b""
    ) -> Completed:
        """Run a command to its end in `folder`; its children in sessions of their own live on."""

    def stream(self, command: Sequence[str], *, folder: str) -> AbstractAsyncContextManager[Stream]:
        """A running command; leaving the context ends it where it has not ended."""

    async def put_folder(
        self, folder: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Create `folder` with these files, wholly or not at all; one that exists is kept."""

    async def put_file(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Replace a file, wholly or not at all."""

    async def size(self, path: str) -> int | None:
        """A file's length in bytes; None where there is none."""

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of a file; empty where there is none."""

    async def names(self, folder: str) -> list[str]:
        """The names in a folder; none where the folder is missing."""

    async def remove(self, path: str) -> int:
        """Remove a file or folder; the bytes that this freed, 0 where there was none."""

    async def disconnect(self) -> None:
        """End the connection, where there is one; may be repeated."""
