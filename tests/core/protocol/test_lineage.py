from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.protocol.lineage import is_live, live_until

starts = st.dictionaries(st.integers(1, 6), st.integers(0, 50))


def test_the_newest_attempt_counts_to_its_end() -> None:
    assert live_until(3, {1: 0, 2: 40, 3: 20}) == math.inf


def test_a_resume_supersedes_what_came_after_the_step_it_started_from() -> None:
    started_at = {1: 0, 2: 40}
    assert is_live(1, 40, started_at)
    assert not is_live(1, 41, started_at)


def test_a_later_rewind_supersedes_all_attempts_before_it() -> None:
    started_at = {1: 0, 2: 40, 3: 20}
    assert live_until(1, started_at) == 20
    assert live_until(2, started_at) == 20


def test_a_start_from_scratch_supersedes_everything() -> None:
    assert not is_live(1, 1, {1: 0, 2: 0})


def test_an_attempt_that_never_came_to_a_start_supersedes_nothing() -> None:
    assert is_live(1, 1000, {1: 0})


@given(starts, st.integers(0, 50))
def test_of_a_step_that_was_reached_some_attempt_stays_live(
    started_at: dict[int, int], step: int
) -> None:
    reached = [attempt for attempt, start in started_at.items() if start < step]
    if reached:
        live = [attempt for attempt in reached if is_live(attempt, step, started_at)]
        newest_start = [a for a, start in started_at.items() if a > max(reached)]
        assert bool(live) != any(started_at[a] < step for a in newest_start)
