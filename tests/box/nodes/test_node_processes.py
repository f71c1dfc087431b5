"""A run on two nodes whose ranks, members, supervisors and connections fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.box.two_nodes import TwoNodes
from support.runs.running_run import wait_until

from trainer_runtime.box.processes.identity import identify

pytestmark = pytest.mark.slow


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[TwoNodes]:
    """A run that takes some seconds, so that something can happen to it meanwhile."""
    made = TwoNodes(tmp_path, steps=120, step_s=0.02)
    yield made
    made.close()


@pytest.fixture
def longest(tmp_path: Path) -> Iterator[TwoNodes]:
    """One that takes longer than a silence that is borne."""
    made = TwoNodes(tmp_path, steps=400, step_s=0.02)
    yield made
    made.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    made.close()


def expected_losses(steps: int) -> dict[int, float]:
    """What both ranks together compute without any interruption."""
    found, state = {}, 1
    for step in range(steps):
        state = (state + 2 * state + 3 * state + step) % 1_000_003
        found[step + 1] = float(state)
    return found


def all_losses(nodes: TwoNodes) -> dict[int, float]:
    """The newest attempt's value of every step."""
    found: dict[int, float] = {}
    for attempt in nodes.record().attempts:
        found |= nodes.losses(attempt.number)
    return found


def test_a_run_on_two_nodes_completes(nodes: TwoNodes) -> None:
    nodes.start()
    record = nodes.until("completed")
    assert record.nodes == {"gpu1": "connected", "gpu2": "connected"}
    assert all_losses(nodes) == expected_losses(nodes.steps)
    assert [attempt.reason for attempt in record.attempts] == ["completed"]
    cache = nodes.folders[1].host_root / "cache"
    assert list(cache.glob("data/*/meta.json"))  # though its node has no such corpus


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_on_either_node_ends_the_attempt_on_both(
    slow: TwoNodes, rank: int
) -> None:
    slow.start()
    slow.until_step(30)
    slow.kill(slow.rank(rank))
    slow.until("completed")
    first, second = slow.record().attempts
    assert (first.reason, first.signal) == ("killed", signal.SIGKILL)
    assert f"rank {rank} on node {('gpu1', 'gpu2')[rank]}" in str(first.detail)
    assert second.started_at_step and second.started_at_step >= 20
    assert all_losses(slow) == expected_losses(slow.steps)
    tail = "The log of gpu2 ends with:"
    assert (tail in slow.folders[0].attempt(1).train_log.read_text()) is False or rank == 1


def test_a_member_that_is_killed_ends_the_attempt_until_another_one_is_started(
    longest: TwoNodes,
) -> None:
    longest.start()
    longest.until_step(30)
    rank = longest.rank(0)
    longest.kill(longest.supervisor(1))
    wait_until(lambda: longest.record().nodes.get("gpu2") == "lost", "the node is lost")
    first = wait_until(lambda: longest.record().attempts[0].reason and longest.attempt(1), "an end")
    assert (first.reason, first.detail) == ("node_lost", "node gpu2 is lost: not heard of for 3 s")
    assert is_gone(rank)
    longest.start(1)
    longest.until("completed")
    assert all_losses(longest) == expected_losses(longest.steps)


def test_a_supervisor_that_is_killed_costs_nothing(slow: TwoNodes) -> None:
    slow.start()
    slow.until_step(20)
    slow.kill(slow.supervisor(0))
    slow.until_step(60)
    slow.start(0)
    assert len(slow.until("completed").attempts) == 1
    assert all_losses(slow) == expected_losses(slow.steps)


def test_a_member_that_hears_nothing_kills_its_ranks(slow: TwoNodes) -> None:
    slow.start()
    slow.until_step(30)
    rank, supervisor = slow.rank(1), slow.supervisor(0)
    os.kill(slow.rank(0), signal.SIGSTOP)  # as a machine without power
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: is_gone(rank), "the end of the ranks there")
    os.kill(supervisor, signal.SIGCONT)
    slow.until("completed")
    assert all_losses(slow) == expected_losses(slow.steps)


def test_a_stop_saves_on_both_nodes_and_a_resume_is_exact(slow: TwoNodes) -> None:
    slow.start()
    slow.until_step(30)
    slow.ask("stopped", 2)
    stopped = slow.until("stopped").attempts[0]
    assert (stopped.reason, stopped.code) == ("stopped", 75)
    slow.ask("running", 3)
    slow.start()
    second = slow.until("completed").attempts[1]
    assert second.started_at_step == stopped.last_step
    assert all_losses(slow) == expected_losses(slow.steps)


def is_gone(pid: int) -> bool:
    return identify(pid) is None
