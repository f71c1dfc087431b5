"""Taking figures in turns, so that what else the machine does meets every side alike."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Sample = Callable[[], float]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def in_turns(sides: Mapping[str, Sample], turns: int) -> dict[str, tuple[float, ...]]:
    """Each side's figures, `turns` of each; every second turn goes through the sides backwards."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        names = list(sides)
        for name in names if turn % 2 == 0 else reversed(names):
            taken[name].append(sides[name]())
    return {name: tuple(samples) for name, samples in taken.items()}


def seconds(work: Callable[[], object], scale: float = 1.0) -> Sample:
    """Wall seconds of `work`, times `scale` (1e3 for ms)."""

    def sample() -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * scale

    return sample


def processor_seconds(work: Callable[[], object], scale: float = 1.0) -> Sample:
    """Processor seconds that `work` takes of this process, times `scale`."""

    def sample() -> float:
        started = time.process_time()
        work()
        return (time.process_time() - started) * scale

    return sample


def rate(work: Callable[[], object], amount: float, *, of_processor: bool = False) -> Sample:
    """`amount` per second of wall time, or of this process's processor time."""
    taken = (processor_seconds if of_processor else seconds)(work)
    return lambda: amount / taken()


def command_seconds(
    command: Sequence[str], environment: Mapping[str, str] | None = None, scale: float = 1.0
) -> Sample:
    """Wall seconds of a command that must succeed."""
    return seconds(lambda: _run(command, environment), scale)


def command_processor_seconds(
    command: Sequence[str], environment: Mapping[str, str] | None = None, scale: float = 1.0
) -> Sample:
    """Processor seconds of a command and of its children that it has waited for."""

    def sample() -> float:
        before = _children_s()
        _run(command, environment)
        return (_children_s() - before) * scale

    return sample


def best(sample: Sample, of: int) -> Sample:
    """The least of a few calls: for what takes microseconds and has no peer to alternate with."""
    return lambda: min(sample() for _ in range(of))


def processor_s(pid: int) -> float:
    """User and system time of a process so far.

    Raises:
        OSError: the process has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def own_processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_memory_mib(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """The largest resident size that a command that must succeed had."""
    watched = (
        "import resource, subprocess, sys;"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    whole = [sys.executable, "-c", watched, *command]
    return float(subprocess.check_output(whole, env=_whole(environment), text=True))


def _run(command: Sequence[str], environment: Mapping[str, str] | None) -> None:
    # Not the null device: grep, for one, stops at its first match when it writes there.
    subprocess.run(command, env=_whole(environment), check=True, capture_output=True)


def _whole(environment: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(environment or {})}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
