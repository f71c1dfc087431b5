"""Many ranks' values of a step become one aggregate, once, whatever order they come in."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from trainer_runtime.core.diagnosis.rank_aggregates import (
    RankAggregate,
    RankAggregates,
    compared,
)

Value = tuple[int, int, float]  # step, rank, value


def step_time(step: int, rank: int) -> float:
    return 1.5 if rank == 17 else 1.0 + rank / 1e6 + step / 1e9


def aggregates_of(values: Iterable[Value], key: str = "step_time_s") -> list[RankAggregate]:
    ranks = RankAggregates()
    made = [one for step, rank, value in values for one in ranks.add(key, 0, step, rank, value)]
    return [*made, *ranks.finish()]


def in_order(ranks: int, steps: int) -> list[Value]:
    return [(s, rank, step_time(s, rank)) for s in range(steps) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [3, 64, 1000])
def test_every_step_gives_one_aggregate_of_all_ranks(ranks: int) -> None:
    made = aggregates_of(in_order(ranks, 12))
    assert [one.step for one in made] == list(range(12))
    assert {one.ranks for one in made} == {ranks}
    assert all(one.least <= one.median <= one.most for one in made)
    if ranks > 17:
        assert {one.slowest for one in made} == {17}
        assert made[0].behind == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_run_ahead_of_others_change_nothing(seed: int) -> None:
    chosen = random.Random(seed)
    values = in_order(64, 200)
    # As lines of many writers arrive: each a few steps early or late.
    mixed = sorted(values, key=lambda value: value[0] + chosen.uniform(0, 3))
    made = aggregates_of(mixed)
    assert sorted(one.step for one in made) == list(range(200))
    assert all(one.ranks == 64 and one.slowest == 17 for one in made[3:])


def test_buffered_output_of_each_rank_is_awaited_after_the_first_block() -> None:
    blocks = [
        (step, rank, step_time(step, rank))
        for block in range(4)
        for rank in range(64)
        for step in range(80 * block, 80 * (block + 1))
    ]
    made = aggregates_of(blocks)
    assert len({one.step for one in made}) == len(made) == 320
    assert {one.ranks for one in made if one.step >= 80} == {64}


def test_a_rank_that_ended_is_missed_in_the_count_and_not_waited_for_forever() -> None:
    values = [value for value in in_order(64, 400) if value[1] != 5 or value[0] < 50]
    ranks = RankAggregates()
    made: list[RankAggregate] = []
    latest = 0
    for step, rank, value in values:
        found = ranks.add("step_time_s", 0, step, rank, value)
        made += found
        latest = step - found[-1].step if found else latest
    assert [one.step for one in made] == list(range(400))
    assert {one.ranks for one in made[:50]} == {64} and {one.ranks for one in made[50:]} == {63}
    assert latest == 0, "the newest steps are given out at once again"


def test_a_rank_that_joins_late_is_counted_soon() -> None:
    values = [value for value in in_order(64, 40) if value[1] != 63 or value[0] >= 20]
    made = aggregates_of(values)
    assert made[-1].ranks == 64


def test_two_ranks_give_no_aggregate() -> None:
    assert aggregates_of(in_order(2, 300)) == []


def test_a_value_that_is_not_finite_is_counted_apart() -> None:
    values = [(s, rank, math.nan if rank == 3 else 2.0) for s in range(6) for rank in range(8)]
    made = aggregates_of(values, "loss")
    assert made[0].values() == {
        "loss/ranks_min": 2.0,
        "loss/ranks_median": 2.0,
        "loss/ranks_max": 2.0,
        "loss/ranks_count": 8.0,
        "loss/ranks_nonfinite": 1.0,
    }
    assert compared(made) is None


def test_the_slowest_of_rates_is_the_lowest() -> None:
    values = [(s, rank, 50.0 if rank == 2 else 100.0) for s in range(6) for rank in range(8)]
    made = aggregates_of(values, "tokens_per_s")
    assert (made[0].slowest, made[0].behind) == (2, 2.0)
