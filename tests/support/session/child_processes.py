"""The processes that one has started, and their children."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from trainer_runtime.core.processes.parent_death import descends_from


def descendants(pid: int) -> list[int]:
    """The processes that descend from one, without those that have ended."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdecimal() and descends_from(int(name), pid) and not _has_ended(int(name))
    ]


@pytest.fixture
def started_here() -> Callable[[], list[int]]:
    """Returns which processes descend from this one that did not when the test began: a worker of
    the suite also has those of earlier tests, which end with their module or with the worker."""
    earlier = set(descendants(os.getpid()))
    return lambda: [pid for pid in descendants(os.getpid()) if pid not in earlier]


def until_gone(pids: Iterable[int], within_s: float) -> None:
    """Wait until none of these processes is there."""
    deadline = time.monotonic() + within_s
    while left := [pid for pid in pids if not _has_ended(pid)]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.01)


def processor_s(pid: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
