"""The clock by which one node measures the silence of another."""

from __future__ import annotations

import threading
from itertools import count

from support.runs.running_run import wait_until

from trainer_runtime.host.nodes.awake import AwakeClock


def test_of_a_pause_two_fifths_of_the_silence_count_and_what_is_read_in_time_in_full() -> None:
    times = iter([100.0, 100.5, 106.5, 166.5, 167.0])
    clock = AwakeClock(20.0, lambda: next(times))
    assert [clock.now() for _ in range(4)] == [0.5, 6.5, 14.5, 15.0]


def test_a_starved_listener_still_notices_silence_within_a_minute() -> None:
    times = count(0.0, 10.0)
    clock = AwakeClock(20.0, lambda: next(times))
    readings = next(number for number in count(1) if clock.now() > 20.0)
    assert readings * 10.0 <= 30.0


def test_it_advances_while_nobody_reads_it() -> None:
    seconds = count()
    clock = AwakeClock(20.0, lambda: float(next(seconds)))
    with clock.ticking():
        wait_until(lambda: next(seconds) > 100, "readings by its thread")
    assert not [one for one in threading.enumerate() if one.name == "awake"]
    assert clock.now() > 2.0
