"""Reads the kernel's messages on killed processes and failed GPUs, where permitted."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_KMSG = Path("/dev/kmsg")
_MOST_RECORDS = 50_000
_MOST_LINES = 64
_LONGEST_RECORD = 8192  # the kernel's own bound
_DMESG_TIMEOUT_S = 2.0
# Messages are stamped by a clock that a few seconds of doubt do not hurt.
_DOUBT_S = 5.0
_OF_A_GPU = re.compile(rb"NVRM: |\bXid\b|fallen off the bus")
_OF_MEMORY = re.compile(rb"(?i)out of memory|oom-kill:|Killed process")
# The card's own faults, in any process: they name the process that met them, or none.
_HARDWARE = re.compile(rb"\bXid \([^)]*\): (?:48|63|64|74|79|92|94|95)\b")
_RECORD = re.compile(rb"\d+,\d+,(\d+),[^;]*;([^\n]*)")
_DMESG_LINE = re.compile(rb"(?:<\d+>)?\[\s*(\d+\.\d+)\] ([^\n]*)")
_NAMED_PID = re.compile(rb"(?:Killed process |\bpid=)(\d+)")


def kernel_lines(since_t: float, now: float, pids: Collection[int] = ()) -> tuple[bytes, ...]:
    """The newest lines on failures since `since_t` (Unix seconds); () without permission to read.

    Other processes of the machine are killed for memory, too, and misuse their GPUs: such lines
    count where they name one of `pids`.
    """
    since_s = time.clock_gettime(time.CLOCK_MONOTONIC) - (now - since_t) - _DOUBT_S
    try:
        return concerning(_read(_KMSG), since_s, pids)
    except OSError:
        return concerning(_ask_dmesg(), since_s, pids)


def concerning(
    messages: Iterable[tuple[float, bytes]], since_s: float, pids: Collection[int]
) -> tuple[bytes, ...]:
    """Of (seconds since boot, line) the newest 64 that concern these processes or the cards."""
    lines = (line for at, line in messages if at >= since_s and _concerns(line, pids))
    return tuple(deque(lines, maxlen=_MOST_LINES))


def _concerns(line: bytes, pids: Collection[int]) -> bool:
    named = [int(pid) for pid in _NAMED_PID.findall(line)]
    if _OF_A_GPU.search(line):
        return not named or any(pid in pids for pid in named) or bool(_HARDWARE.search(line))
    return bool(_OF_MEMORY.search(line)) and any(pid in pids for pid in named)


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
