"""The clock by which one node measures the silence of another."""

from __future__ import annotations

import threading
from itertools import count

from support.runs.running_run import wait_until

from trainer_runtime.box.nodes.awake import AwakeClock


def test_a_pause_counts_as_two_seconds_and_what_is_read_in_time_in_full() -> None:
    times = iter([100.0, 100.5, 101.5, 161.5, 162.0])
    clock = AwakeClock(lambda: next(times))
    assert [clock.now() for _ in range(4)] == [0.5, 1.5, 3.5, 4.0]


def test_it_advances_while_nobody_reads_it() -> None:
    seconds = count()
    clock = AwakeClock(lambda: float(next(seconds)))
    with clock.ticking():
        wait_until(lambda: next(seconds) > 100, "readings by its thread")
    assert not [one for one in threading.enumerate() if one.name == "awake"]
    assert clock.now() > 2.0
