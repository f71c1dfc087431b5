"""Reads the limits of this process's cgroups, and what the machine has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainer_runtime.core.records import dataclass

# Version 1 says "no limit" by a number of nearly 2^63, rounded down to a page.
_NO_LIMIT_BYTES = 1 << 60
_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Limits:
    """`cores` and `memory_bytes` are what this process may use, the others what is there."""

    cores: float
    cores_there: int
    memory_bytes: int
    memory_there_bytes: int


def limits(root: Path = Path("/")) -> Limits:
    """The tightest of the limits on this process's own group and all groups above it.

    Raises:
        OSError, ValueError: `/proc` is not what it is on Linux.
    """
    found = re.search(r"^MemTotal:\s+(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
    memory_there = int(found.group(1)) * 1024 if found else 0
    affine = float(len(os.sched_getaffinity(0)))
    cores, memory = [affine], [memory_there]
    for folder in _groups(root):
        cores += _quota(folder)
        memory += _memory(folder)
    return Limits(
        cores=round(min(cores), 2),
        cores_there=os.cpu_count() or int(affine),
        memory_bytes=min(memory),
        memory_there_bytes=memory_there,
    )


def host_memory_gib() -> float | None:
    """The memory limit of this process; None if there is none to read."""
    try:
        return limits().memory_bytes / _GIB or None
    except (OSError, ValueError):
        return None


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's control groups, innermost first, in either version."""
    mounted = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else [""]:
            if controller in ("", "memory", "cpu"):
                inner = [part for part in path.split("/") if part not in ("", "..")]
                for depth in range(len(inner), -1, -1):
                    yield mounted.joinpath(controller, *inner[:depth])


def _quota(folder: Path) -> list[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return [int(quota) / int(period)] if quota not in ("max", "-1") else []
    except (OSError, ValueError):
        return []


def _memory(folder: Path) -> list[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            limit = int((folder / name).read_text())
        except (OSError, ValueError):
            continue
        return [limit] if limit < _NO_LIMIT_BYTES else []
    return []
