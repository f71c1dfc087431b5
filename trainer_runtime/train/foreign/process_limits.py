"""Limits of a process that reads checkpoints of others, which can be made so as to never end."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

# PyTorch's import takes some 5 s; a byte is read, summed and copied within 10 ns.
_LEAST_CPU_S = 120
_CPU_BYTES_PER_S = 20e6
# Python, PyTorch and its threads; beside it a file is held in memory up to three times.
_LEAST_MEMORY_BYTES = 8 << 30
_COPIES = 3


def limit_process(paths: Iterable[Path]) -> None:
    """Give this process the processor time and memory that reading these files can take.

    The kernel ends a process beyond its time by SIGXCPU, whatever it is doing, and refuses it more
    memory. Only bytes that are on the disk count, once for each file: not holes, nor links.
    """
    on_disk: dict[tuple[int, int], int] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:  # reading it says why
            continue
        on_disk[status.st_dev, status.st_ino] = status.st_blocks * 512
    size = sum(on_disk.values())
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime + _LEAST_CPU_S + size / _CPU_BYTES_PER_S)
    _set_soft(resource.RLIMIT_CPU, cpu_s)
    _set_soft(resource.RLIMIT_DATA, _LEAST_MEMORY_BYTES + _COPIES * size)
    _set_soft(resource.RLIMIT_CORE, 0)


def _set_soft(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (soft, hard))
