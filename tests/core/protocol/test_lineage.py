from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.protocol.lineage import Lineage, Start


def lineage(started_at: dict[int, int], saved_by: dict[int, int] | None = None) -> Lineage:
    return Lineage(Start(n, step, (saved_by or {}).get(n)) for n, step in started_at.items())


starts = st.dictionaries(st.integers(1, 6), st.integers(0, 50))


def test_the_newest_attempt_counts_to_its_end() -> None:
    assert lineage({1: 0, 2: 40, 3: 20}).live_until(3) == math.inf


def test_a_resume_supersedes_what_came_after_the_step_it_started_from() -> None:
    found = lineage({1: 0, 2: 40})
    assert found.is_live(1, 40)
    assert not found.is_live(1, 41)


def test_a_later_rewind_supersedes_all_attempts_before_it() -> None:
    found = lineage({1: 0, 2: 40, 3: 20})
    assert (found.live_until(1), found.live_until(2)) == (20, 20)


def test_a_start_from_scratch_supersedes_everything() -> None:
    assert not lineage({1: 0, 2: 0}).is_live(1, 1)


def test_an_attempt_that_never_came_to_a_start_supersedes_nothing() -> None:
    assert lineage({1: 0}).is_live(1, 1000)


def test_a_return_to_a_superseded_checkpoint_leaves_out_what_came_between() -> None:
    # 1 reached 500; 2 started over; 3 returned to 1's checkpoint of step 500, 4 continues 3.
    found = lineage({1: 0, 2: 0, 3: 500}, saved_by={3: 1})
    assert (found.live_until(1), found.live_until(2)) == (500, 0)
    found = lineage({1: 0, 2: 0, 3: 500, 4: 550}, saved_by={3: 1, 4: 3})
    assert [found.live_until(n) for n in (1, 2, 3)] == [500, 0, 550]


@given(starts, st.data())
def test_who_saved_the_checkpoint_changes_nothing_where_the_newest_history_holds_it(
    started_at: dict[int, int], data: st.DataObject
) -> None:
    saved_by: dict[int, int] = {}
    for number in sorted(started_at):
        known = lineage({n: s for n, s in started_at.items() if n < number}, saved_by)
        step = started_at[number]
        holding = [n for n in started_at if n < number and started_at[n] < step]
        holding = [n for n in holding if known.is_live(n, step)]
        if holding and data.draw(st.booleans()):
            saved_by[number] = max(holding)
    plain, known_by = lineage(started_at), lineage(started_at, saved_by)
    for number, start in started_at.items():
        reached = max(plain.live_until(number), start)
        assert max(known_by.live_until(number), start) == reached


@given(starts, st.integers(0, 50))
def test_of_a_step_that_was_reached_some_attempt_stays_live(
    started_at: dict[int, int], step: int
) -> None:
    reached = [attempt for attempt, start in started_at.items() if start < step]
    if reached:
        found = lineage(started_at)
        live = [attempt for attempt in reached if found.is_live(attempt, step)]
        newest_start = [a for a, start in started_at.items() if a > max(reached)]
        assert bool(live) != any(started_at[a] < step for a in newest_start)
