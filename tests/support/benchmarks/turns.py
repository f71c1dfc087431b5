"""Taking figures in turns, so that what else the machine does meets every side alike."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

Sample = Callable[[], float]
_ALL_ITS_THREADS = 2  # the clock that Linux has of a process, as `clock_getcpuclockid` names it
LEAST_TURNS = 3  # of which a median says something


class OutOfTime(Exception):
    """There is less time than a figure takes; the message says how much of both."""


def in_turns(
    sides: Mapping[str, Sample],
    turns: int,
    *,
    enough_s: float = math.inf,
    left_s: float = math.inf,
) -> dict[str, tuple[float, ...]]:
    """Each side's figures, `turns` of each; every second turn goes through the sides backwards.

    What the first turn has taken says how many there are time for: three within `left_s`, more of
    them within `enough_s`.

    Raises:
        OutOfTime: after the first turn, where three do not fit.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    began = time.monotonic()
    for turn in range(turns):
        names = list(sides)
        for name in names if turn % 2 == 0 else reversed(names):
            taken[name].append(sides[name]())
        passed_s = time.monotonic() - began
        usual_s = passed_s / (turn + 1)
        if turn == 0 and min(LEAST_TURNS, turns) * usual_s > left_s:
            raise OutOfTime(f"a turn takes {usual_s:.0f} s, and {left_s:.0f} s were left")
        if turn + 1 >= LEAST_TURNS and passed_s + usual_s > enough_s:
            break
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
    """User and system time of a process so far, finer than the ticks of its `stat`.

    Raises:
        OSError: the process has ended.
    """
    return time.clock_gettime_ns(~pid << 3 | _ALL_ITS_THREADS) / 1e9


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
