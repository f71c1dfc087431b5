"""On which nodes an attempt runs, and how they share its steps."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.patch import apply_sets
from trainer_runtime.core.processes.fewer_nodes import Step, chosen_nodes, possible_counts, resized

STEP = Step(sequences=12, micro_batch=2, node_ranks=1)


def config() -> dict[str, Any]:
    """Three nodes of two ranks each."""
    return {
        "compute": {"processes": 6, "nodes": 3, "taking_part": [0, 1, 2], "strategy": "ddp"},
        "batch": {"tokens": 768, "micro_batch": 2, "accumulation": 1},
        "derived": {"sequences_per_step": 12},
    }


@pytest.mark.parametrize(
    ("available", "all_nodes", "least", "chosen"),
    [
        ([0, 1, 2], 3, 1, [0, 1, 2]),
        ([0, 2], 3, 1, [0, 2]),
        ([0], 3, 2, [0, 1, 2]),  # too few: the others are waited for again
        ([0, 1, 2, 3, 5], 6, 1, [0, 1, 2, 3]),  # five can't share twelve sequences
    ],
)
def test_the_most_of_the_available_that_can_share_a_step_take_part(
    available: list[int], all_nodes: int, least: int, chosen: list[int]
) -> None:
    assert chosen_nodes(STEP, available, all_nodes, least) == chosen


def test_counts_that_would_change_the_batch_are_not_possible() -> None:
    assert possible_counts(STEP, 1, 7) == [1, 2, 3, 4, 6]
    assert possible_counts(Step(12, 4, 1, is_fixed=True), 1, 7) == [1, 3]


def test_a_step_keeps_its_sequences_on_fewer_nodes_and_on_all_again() -> None:
    whole = config()
    fewer = apply_sets(whole, resized(RunConfig.parse(whole), {}, [0, 2], 3))
    assert fewer["compute"] == {
        "processes": 4,
        "nodes": 2,
        "taking_part": [0, 2],
        "strategy": "ddp",
    }
    assert (fewer["batch"]["micro_batch"], fewer["batch"]["accumulation"]) == (1, 3)
    again = apply_sets(fewer, resized(RunConfig.parse(fewer), {}, [0, 1, 2], 3))
    assert again == {**whole, "batch": {**whole["batch"], "micro_batch": 1, "accumulation": 2}}
    assert resized(RunConfig.parse(again), {}, [0, 1, 2], 3) == {}


@pytest.mark.parametrize("strategy", ["fsdp", "zero3"])
def test_a_model_that_is_shared_out_stays_so_on_fewer_nodes(strategy: str) -> None:
    sharded = RunConfig.parse(apply_sets(config(), {"compute.strategy": strategy}))
    assert resized(sharded, {}, [0], 3)["compute.strategy"] == strategy


def test_changes_that_a_resume_asks_for_hold_on_fewer_nodes_too() -> None:
    asked = {"compute.processes": 3, "batch.micro_batch": 4, "derived.sequences_per_step": 24}
    changes = resized(RunConfig.parse(config()), asked, [0, 1], 3)
    assert changes["compute.processes"] == 2  # one on each node
    assert (changes["batch.micro_batch"], changes["batch.accumulation"]) == (4, 3)
