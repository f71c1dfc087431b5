"""What every machine can do for a backend, whichever way it is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """A command's end: exit code, standard output and standard error."""

    code: int
    output: str
    errors: str


class Host(Protocol):
    """A machine. Paths are absolute, as text, in the machine's own terms.

    Every method raises `HostError` where the machine refuses (`ROOT_NOT_WRITABLE`, `DISK_FULL`).
    """

    name: str
    root: str

    @property
    def python(self) -> str:
        """The interpreter (3.10 or newer) that runs the box's side."""

    async def run(self, command: Sequence[str], *, folder: str, timeout_s: float) -> Completed:
        """Run a command to its end in `folder`; its children in sessions of their own live on."""

    async def put_folder(
        self, folder: str, files: Mapping[str, bytes], executable: frozenset[str]
    ) -> None:
        """Create `folder` with these files, wholly or not at all; one that exists is kept."""

    async def put_file(self, path: str, data: bytes) -> None:
        """Replace a file, wholly or not at all."""

    async def size(self, path: str) -> int | None:
        """A file's length in bytes; None where there is none."""

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of a file; empty where there is none."""

    async def names(self, folder: str) -> list[str]:
        """The names in a folder; none where there is no such folder."""

    async def remove(self, path: str) -> int:
        """Remove a file or folder; the bytes that this freed, 0 where there was none."""
