"""The port that every SSH transport implements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """A command's end: exit code, standard output and standard error."""

    code: int
    output: str
    errors: str


class Stream(Protocol):
    """A command while it runs: bytes into its standard input, bytes from its standard output.

    Each method raises `HostError` `LINK_LOST`.
    """

    async def write(self, data: bytes) -> None:
        """Send `data`; waits while the command does not read."""

    async def finish(self) -> None:
        """Close the command's standard input."""

    async def read(self, limit: int) -> bytes:
        """At most `limit` bytes, as soon as there are any; empty once the output has ended."""

    async def end(self) -> tuple[int, str]:
        """Wait for the command's end: its exit code and standard error."""


class Transport(Protocol):
    """One connection to a machine. Commands are argument lists; paths are the machine's.

    With any login shell, whatever it prints, arguments arrive unchanged and outputs contain only
    the command's own.

    Each method raises `HostError`: `LINK_LOST`, the connection broke (the command may have run);
    `SHELL_UNUSABLE`, the login shell runs no command; `DISK_FULL` and `ROOT_NOT_WRITABLE`, the
    machine refuses to write.
    """

    async def run(
        self,
        command: Sequence[str],
        *,
        folder: str | None = None,
        stdin: bytes = b"",
        timeout_s: float,
    ) -> Completed:
        """Run a command to its end in `folder` (the login folder where None).

        Code 124: it did not end within `timeout_s`; 126: `folder` can't be entered; 127: the
        program does not exist.
        """

    def stream(
        self, command: Sequence[str], *, folder: str | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """A running command; leaving the context ends it."""

    async def put(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Replace a file atomically; its folder must exist."""

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        """At most `limit` bytes of a file from `offset` on; None if the file does not exist."""

    async def size(self, path: str) -> int | None:
        """A file's length in bytes; None if it does not exist."""

    async def names(self, folder: str) -> list[str]:
        """The sorted names in a folder; empty if it does not exist."""

    async def disconnect(self) -> None:
        """Close the connection. Idempotent."""
