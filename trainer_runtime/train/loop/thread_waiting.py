"""How the training's OpenMP threads wait for each other: by what shares the cores with them.

Alone, threads that spin at a barrier are fastest. Beside a busy process they spin away the share
of the core that the scheduler grants them, and each barrier then waits for one that has used up its
share: a small model's steps took 95 ms instead of 26. The time for which threads waited for a core
distinguishes the two. The results are the same bits either way.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_MEASURED_EVERY_S = 2.0
# Seconds that all threads together wait for a core, per second. Measured alone: up to 0.06; beside
# one busy process 0.9 while spinning, 0.5 while sleeping.
_BUSY_SHARE = 0.3
_QUIET_SHARE = 0.1
# The idle pool has a thread per core; beyond this many, one neighbour slows a training little.
_MOST_CORES = 64
_NANOSECONDS = 1e9


class Switch(Protocol):
    """Makes OpenMP threads sleep, or spin as before."""

    def sleep(self) -> None: ...

    def spin(self) -> None: ...


class ThreadWaiting:
    """Lets threads sleep while others use the cores; to be called after each step.

    `waited_s`: seconds that this process's threads have waited for a core so far, None where the
    system does not say.
    """

    def __init__(
        self, switch: Switch | None = None, waited_s: Callable[[], float | None] | None = None
    ) -> None:
        self._switch = switch or _OpenMP()
        self._waited_s = waited_s or _waited_for_a_core_s
        self._before: tuple[float, float] | None = None
        self._sleeps = False

    def step_ended(self, now_s: float) -> None:
        """Decides at most every two seconds; `now_s` is a monotonic clock's."""
        if self._before is not None and now_s - self._before[0] < _MEASURED_EVERY_S:
            return
        waited_s = self._waited_s()
        if waited_s is None:
            return
        before, self._before = self._before, (now_s, waited_s)
        if before is None:
            return
        share = (waited_s - before[1]) / (now_s - before[0])
        if not self._sleeps and share > _BUSY_SHARE:
            self._sleeps = True
            self._switch.sleep()
        elif self._sleeps and share < _QUIET_SHARE:
            self._sleeps = False
            self._switch.spin()


class _OpenMP:
    """GNU's OpenMP, whose threads spin only while there are no more of them than cores.

    A second pool of idle threads therefore makes all of them sleep, until it ends with its thread.
    A running process can't change this in another way. Without GNU's OpenMP nothing happens.
    """

    def __init__(self) -> None:
        self._end: threading.Event | None = None

    def sleep(self) -> None:
        path = _path_of_gnu_openmp()
        too_many = len(os.sched_getaffinity(0)) > _MOST_CORES
        if path is None or too_many or self._end is not None:
            return
        self._end, opened = threading.Event(), threading.Event()
        arguments = path, self._end, opened
        threading.Thread(target=_hold_pool, args=arguments, name="openmp", daemon=True).start()
        opened.wait()

    def spin(self) -> None:
        if self._end is not None:
            self._end.set()
            self._end = None


def _hold_pool(path: str, end: threading.Event, opened: threading.Event) -> None:
    """Opens a pool larger than the number of cores, whose threads do nothing, until `end`."""
    threads = ctypes.c_uint(len(os.sched_getaffinity(0)) + 1)
    try:
        do_nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # of a null pointer
        ctypes.CDLL(path).GOMP_parallel(do_nothing, None, threads, ctypes.c_uint(0))
    except (OSError, AttributeError):  # another build of the library: threads wait as before
        return
    finally:
        opened.set()
    end.wait()


def _path_of_gnu_openmp() -> str | None:
    """The library that this process has loaded; None if it has not."""
    try:
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (line.partition("/") for line in mapped if "libgomp" in line)
    return next((slash + path for _, slash, path in paths), None)


def _waited_for_a_core_s() -> float | None:
    """Of all threads that live now (Linux: Documentation/scheduler/sched-stats.rst)."""
    total_ns, has_statistics = 0, False
    for file in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total_ns += int(file.read_text().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended
            continue
        has_statistics = True
    return total_ns / _NANOSECONDS if has_statistics else None
