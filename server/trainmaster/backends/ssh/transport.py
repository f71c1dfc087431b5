"""What every way to a machine can do: the port below SSH hosts, one contract for all of them."""

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

    Raises, each method: `HostError` `LINK_LOST`.
    """

    async def write(self, data: bytes) -> None:
        """Send `data`; waits as long as the other side takes no more."""

    async def finish(self) -> None:
        """Close the command's standard input."""

    async def read(self, limit: int) -> bytes:
        """At most `limit` bytes, as soon as there are any; empty once the output has ended."""

    async def end(self) -> tuple[int, str]:
        """Wait for the command's end: its exit code and what it said on standard error."""


class Transport(Protocol):
    """One connection to a machine. Commands are argument lists; paths are the machine's own.

    Whatever the login shell is and prints before a command, arguments arrive exactly and outputs
    hold nothing but the command's own.

    Raises, each method: `HostError`: `LINK_LOST` where the connection breaks on the way (the
    command may or may not have run), `SHELL_UNUSABLE` where the login shell lets no command pass,
    `DISK_FULL` and `ROOT_NOT_WRITABLE` where the machine refuses to write.
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

        Code 124 where it does not end within `timeout_s`, 126 where `folder` can't be entered, 127
        where there is no such program.
        """

    def stream(
        self, command: Sequence[str], *, folder: str | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        """A running command; leaving the context ends it where it has not ended."""

    async def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace a file, wholly or not at all; its folder must be there."""

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        """At most `limit` bytes of a file from `offset` on; None where there is no such file."""

    async def size(self, path: str) -> int | None:
        """A file's length in bytes; None where there is none."""

    async def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""

    async def disconnect(self) -> None:
        """End the connection; may be repeated."""
