"""A disk that stops answering: writers hang in the kernel, as with a lost file server."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

_SIZE_BYTES = 64 << 20


class FrozenDisk:
    """A file system of its own at `folder`. Takes root. Leaving the context thaws it first."""

    def __init__(self, folder: Path, image: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("a disk of one's own takes root")
        self._folder = folder
        with image.open("wb") as file:
            file.truncate(_SIZE_BYTES)
        _run("mkfs.ext4", "-q", str(image))
        _run("mount", "-o", "loop", str(image), str(folder))
        self._is_frozen = False

    def freeze(self) -> None:
        """From now on no write ends."""
        _run("fsfreeze", "--freeze", str(self._folder))
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            _run("fsfreeze", "--unfreeze", str(self._folder))
            self._is_frozen = False

    def __enter__(self) -> FrozenDisk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.thaw()
        _run("umount", "--lazy", str(self._folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
