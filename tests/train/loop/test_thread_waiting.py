"""OpenMP threads sleep while others use the cores, and spin again afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_runtime.train.loop.thread_waiting import ThreadWaiting

REPOSITORY = Path(__file__).parents[3]
# Prints the number of threads before, during and after a pool of idle ones.
OPENING_A_POOL = """
import os, torch
from trainer_runtime.train.loop.thread_waiting import _OpenMP

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
torch.ones(1 << 20).sum()
openmp = _OpenMP()
before = threads()
openmp.sleep()
openmp.sleep()
during = threads()
openmp.spin()
openmp.spin()
while threads() > before:
    os.sched_yield()
openmp.sleep()
print(before, during, threads(), float(torch.ones(1 << 20).sum()))
"""


class Recorded:
    """A switch that records how it was set."""

    def __init__(self) -> None:
        self.settings: list[str] = []

    def sleep(self) -> None:
        self.settings.append("sleep")

    def spin(self) -> None:
        self.settings.append("spin")


def settings(*shares: float) -> list[str]:
    """What is set when threads wait for a core by these shares of successive three seconds."""
    switch, waited_s = Recorded(), 0.0
    waiting = ThreadWaiting(switch, lambda: waited_s)
    waiting.step_ended(0.0)
    for period, share in enumerate(shares, start=1):
        waited_s += 3.0 * share
        waiting.step_ended(3.0 * period)
        waiting.step_ended(3.0 * period + 0.1)
    return switch.settings


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.0, 0.05, 0.25), []),
        ((0.9, 0.5, 0.5), ["sleep"]),
        ((0.9, 0.5, 0.02, 0.05), ["sleep", "spin"]),
        ((0.9, 0.2, 0.2), ["sleep"]),
    ],
)
def test_threads_sleep_while_they_wait_for_cores(
    shares: tuple[float, ...], expected: list[str]
) -> None:
    assert settings(*shares) == expected


def test_where_the_system_does_not_say_nothing_is_changed() -> None:
    switch = Recorded()
    waiting = ThreadWaiting(switch, lambda: None)
    for now_s in (0.0, 5.0, 10.0):
        waiting.step_ended(now_s)
    assert switch.settings == []


def test_the_pool_that_makes_threads_sleep_ends_when_they_spin_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENING_A_POOL],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stderr == ""
    before, during, again, total = done.stdout.split()
    assert int(during) == int(again) == int(before) + 1 + len(os.sched_getaffinity(0))
    assert float(total) == 1 << 20
