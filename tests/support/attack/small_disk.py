"""A disk of a few MiB, really full when it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Path]:
    """A file system of its own at `folder`, in memory."""
    folder.mkdir(parents=True)
    options = ["-o", f"size={size_mib}m,mode=0755"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def allocated_bytes(folder: Path) -> int:
    """What all files below a folder take of the disk."""
    return sum(one.lstat().st_blocks * 512 for one in folder.rglob("*") if one.is_file())
