"""A disk of a few MiB, really full when it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Of the file systems with quotas, the one that needs no more than its own programs and the kernel.
_QUOTA = (
    'truncate -s 256M "$1.img" && mkfs.btrfs -q --mixed "$1.img" && mount -o loop "$1.img" "$1"'
    ' && btrfs quota enable "$1" && btrfs qgroup limit {size_mib}M "$1"'
)
_IN_MEMORY = 'mount -t tmpfs -o size={size_mib}m,nr_inodes={inodes},mode=0755 tmpfs "$1"'


def mounts_disk(size_mib: int, *, by_quota: bool, inodes: int = 0) -> str:
    """What a shell mounts a file system of that size with, at `$1`. `by_quota`: its disk is larger,
    and what exceeds the size is refused with EDQUOT. `inodes`: 0 is without a limit."""
    line = _QUOTA if by_quota else _IN_MEMORY
    return line.format(size_mib=size_mib, inodes=inodes)


@contextmanager
def small_disk(folder: Path, size_mib: int, kind: str = "tmpfs") -> Iterator[Path]:
    """A file system of its own at `folder`, in memory; of kind `ramfs` without a limit, and without
    holes. The test fails where this process may not mount one."""
    folder.mkdir(parents=True)
    options = ["-o", f"size={size_mib}m,mode=0755"] if kind == "tmpfs" else []
    mount = ["mount", "-t", kind, *options, "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"This test mounts a file system, which takes root: {done.stderr}")
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
