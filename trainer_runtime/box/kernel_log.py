"""What the kernel said of killed processes and failed GPUs, where it lets us read that."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

_KMSG = Path("/dev/kmsg")
_MOST_RECORDS = 50_000
_MOST_LINES = 64
_LONGEST_RECORD = 8192  # the kernel's own bound
_DMESG_TIMEOUT_S = 2.0
# Messages are stamped by a clock that a few seconds of doubt do not hurt.
_DOUBT_S = 5.0
_OF_INTEREST = re.compile(
    rb"Out of memory|oom[-_]kill|Killed process|NVRM: |\bXid\b|fallen off the bus"
)
_RECORD = re.compile(rb"\d+,\d+,(\d+),[^;]*;([^\n]*)")
_DMESG_LINE = re.compile(rb"(?:<\d+>)?\[\s*(\d+\.\d+)\] ([^\n]*)")
_NAMED_PID = re.compile(rb"(?:Killed process |\bpid[= ]'?|,pid=)(\d+)")


def kernel_lines(
    since_t: float, now: float, pids: Collection[int] = (), *, kmsg: Path = _KMSG
) -> tuple[bytes, ...]:
    """The newest lines on failures since `since_t` (Unix seconds); () where nobody may read them.

    A line that names a process is kept where that is one of `pids`: other processes of the machine
    are killed for memory, too.
    """
    since_s = time.clock_gettime(time.CLOCK_MONOTONIC) - (now - since_t) - _DOUBT_S
    found: deque[bytes] = deque(maxlen=_MOST_LINES)
    try:
        messages = _read(kmsg)
        found.extend(line for at, line in messages if at >= since_s and _concerns(line, pids))
    except OSError:
        messages = _ask_dmesg()
        found.extend(line for at, line in messages if at >= since_s and _concerns(line, pids))
    return tuple(found)


def _concerns(line: bytes, pids: Collection[int]) -> bool:
    if not _OF_INTEREST.search(line):
        return False
    named = [int(pid) for pid in _NAMED_PID.findall(line)]
    return not named or any(pid in pids for pid in named)


def _read(kmsg: Path) -> Iterator[tuple[float, bytes]]:
    """Every record that the kernel holds, with its time in seconds since boot.

    Raises:
        OSError: it can't be read.
    """
    descriptor = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(descriptor, _LONGEST_RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # it was overwritten before it was read
            if not record:
                return
            match = _RECORD.match(record)
            if match is not None:
                yield int(match[1]) / 1e6, match[2]
    finally:
        os.close(descriptor)


def _ask_dmesg() -> Iterator[tuple[float, bytes]]:
    try:
        done = subprocess.run(
            ["dmesg"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DMESG_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return
    for line in done.stdout.splitlines()[-_MOST_RECORDS:]:
        match = _DMESG_LINE.match(line)
        if match is not None:
            yield float(match[1]), match[2]
