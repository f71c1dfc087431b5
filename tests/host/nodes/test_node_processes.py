"""A run on two nodes whose ranks, members, supervisors and connections fail.

`TRAINMASTER_FAULT_ROUNDS` sets how many kills come at random while a checkpoint is gathered (none
by default: one comes in turn), `TRAINMASTER_FAULT_SEED` which.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host.two_nodes import ADDRESS, TwoNodes, expected_losses
from support.runs.running_run import wait_until

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.files.parts import handed_over
from trainer_runtime.host.processes.identity import identify

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "1"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    """A run that takes some seconds, so that something can happen to it meanwhile."""
    made = TwoNodes(tmp_path, steps=300, step_s=0.02)
    yield made
    made.close()


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[TwoNodes]:
    """The same, whose ranks each write their own part of a checkpoint."""
    made = TwoNodes(tmp_path, steps=120, step_s=0.02, sharded_bytes=0)
    yield made
    made.close()


def all_losses(nodes: TwoNodes) -> dict[int, float]:
    """The newest attempt's value of every step."""
    found: dict[int, float] = {}
    for attempt in nodes.record().attempts:
        found |= nodes.losses(attempt.number)
    return found


def is_gone(pid: int) -> bool:
    return identify(pid) is None


@pytest.mark.long
def test_ranks_supervisors_and_requests_in_turn_leave_exact_losses(nodes: TwoNodes) -> None:
    """Another program has the run's port when it begins, and none when its supervisor is killed."""
    with socket.socket() as other:
        other.bind((ADDRESS, nodes.port))
        nodes.start()
        nodes.until_step(30)
    nodes.kill(nodes.rank(1))  # ends the attempt on both nodes
    nodes.until_step(60, attempt=2)
    nodes.kill(nodes.supervisor(0))  # the ranks continue, and so do their members
    nodes.until_step(90, attempt=2)
    nodes.start(0)
    nodes.ask("stopped", 2)  # both nodes save
    nodes.until("stopped")
    nodes.ask("running", 3)
    nodes.start()
    record = nodes.until("completed")
    assert all_losses(nodes) == expected_losses(nodes.steps)
    killed, stopped, last = record.attempts
    assert (killed.reason, killed.signal) == ("killed", signal.SIGKILL)
    assert "first rank 1 on node gpu2" in str(killed.detail)
    assert (stopped.reason, stopped.code) == ("stopped", 75)
    assert (last.reason, last.started_at_step) == ("completed", stopped.last_step)
    assert record.nodes == {"gpu1": "connected", "gpu2": "connected"}
    cache = nodes.folders[1].host_root / "cache"
    assert list(cache.glob("data/*/meta.json"))  # though that node has no such corpus


@pytest.mark.long
def test_a_run_continues_without_a_node_that_stays_away_and_with_it_again(tmp_path: Path) -> None:
    nodes = TwoNodes(tmp_path, steps=500, step_s=0.02, min_nodes=1, await_nodes="1s")
    try:
        nodes.start()
        nodes.until_step(30)
        nodes.kill(nodes.supervisor(1))
        nodes.until_step(60, attempt=3)
        assert [nodes.attempt(number).reason for number in (1, 2)] == ["node_lost"] * 2
        lost = nodes.attempt(1).number, "node gpu2: not heard of for 3 s"
        found = [one for one in nodes.record().findings.values() if one.finding.code == "node_lost"]
        assert lost in [(one.attempt, *one.finding.evidence) for one in found]
        nodes.start(1)
        wait_until(lambda: nodes.record().nodes.get("gpu2") == "connected", "its return")
        assert not nodes.folders[1].attempt(3).config.exists()  # it has no part in this one
        nodes.kill(nodes.trainer(attempt=3))
        nodes.until("completed")
    finally:
        nodes.close()
    assert all_losses(nodes) == expected_losses(nodes.steps)
    assert [nodes.shape(number) for number in (2, 3, 4)] == [
        (2, [0, 1], 1),
        (1, [0], 2),
        (2, [0, 1], 1),
    ]


@pytest.mark.long
def test_nodes_that_are_silent_end_the_attempt_and_are_waited_for(sharded: TwoNodes) -> None:
    """The member is killed while rank 0 waits for its part of the next checkpoint."""
    nodes = sharded
    nodes.start()
    wait_until(lambda: nodes.checkpoints() == [20], "the first checkpoint, with both nodes' parts")
    rank = nodes.rank(0)
    nodes.kill(nodes.supervisor(1))
    wait_until(lambda: nodes.record().nodes.get("gpu2") == "lost", "the node is lost")
    first = wait_until(lambda: nodes.record().attempts[0].reason and nodes.attempt(1), "an end")
    assert (first.reason, first.detail) == ("node_lost", "node gpu2 is lost: not heard of for 3 s")
    wait_until(lambda: is_gone(rank), "the end of the other node's rank")
    assert nodes.checkpoints() == [20]
    nodes.start(1)
    nodes.until_step(60, attempt=2)
    rank, supervisor = nodes.rank(1, attempt=2), nodes.supervisor(0)
    os.kill(nodes.rank(0, attempt=2), signal.SIGSTOP)  # as a machine without power
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: is_gone(rank), "the end of the ranks there")
    os.kill(supervisor, signal.SIGCONT)
    nodes.until("completed")
    assert all_losses(nodes) == expected_losses(nodes.steps)
    setup = nodes.folders[1].attempt(2).setup_log.read_text()
    assert "step 20" in setup and "2 files are here already" in setup
    kept = nodes.checkpoints()
    assert kept[-1] == nodes.steps and len(kept) <= 3
    for step in kept:
        folder = nodes.folders[0].checkpoint(step)
        assert verify(folder) == []
        assert {"shard-0.json", "shard-1.json"} <= {path.name for path in folder.iterdir()}
    there = nodes.folders[1].checkpoints
    wait_until(lambda: {part.step for part in handed_over(there)} <= set(kept), "old parts to go")
    assert not list(nodes.folders[0].checkpoints.glob(".gathering/*"))


def elapsed(seconds: float) -> None:
    until_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until_s, f"{seconds} s")


@pytest.mark.long
def test_nodes_that_stand_still_together_continue_the_attempt(tmp_path: Path) -> None:
    """As a job that Slurm suspends, or machines that are."""
    silent_s = 5.0
    nodes = TwoNodes(tmp_path, steps=300, step_s=0.02, silent_s=silent_s)
    try:
        nodes.start()
        nodes.until_step(30)
        standing = nodes.processes()
        for pid in standing.values():
            os.kill(pid, signal.SIGSTOP)
        elapsed(silent_s + 1.0)
        os.kill(standing.pop("supervisor"), signal.SIGCONT)
        elapsed(1.0)  # nothing begins at the same moment everywhere
        for pid in standing.values():
            os.kill(pid, signal.SIGCONT)
        record = nodes.until("completed")
    finally:
        nodes.close()
    assert [attempt.reason for attempt in record.attempts] == ["completed"]
    assert all_losses(nodes) == expected_losses(nodes.steps)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A small disk without space is mounted on the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        with contextlib.suppress(OSError), folder.joinpath("filler").open("wb", 0) as file:
            while True:
                file.write(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_of_another_node_is_named_and_the_run_continues_once_it_has_space(
    tmp_path: Path,
) -> None:
    nodes = TwoNodes(tmp_path, await_nodes="1s")
    attempts = nodes.folders[1].root / "attempts"
    try:
        with full_disk(attempts):
            nodes.start()
            member = nodes.supervisor(1)
            wait_until(lambda: nodes.record().attempts and nodes.attempt(1).reason, "an end")
            attempts.joinpath("filler").unlink()
            nodes.until("completed")
            assert nodes.supervisor(1) == member
            nodes.close()
    finally:
        nodes.close()
    first = nodes.attempt(1)
    words = "[Errno 28] No space left on device"
    assert first.reason == "crashed" and f"node gpu2: {words}" in str(first.detail)
    assert f"gpu2: {words}" in str(first.last_words)
    found = [one.finding for one in nodes.record().findings.values() if one.attempt == 1]
    assert [finding.code for finding in found] == ["disk_full"]
    assert all_losses(nodes) == expected_losses(nodes.steps)


@pytest.mark.long
def test_a_node_that_is_kept_from_its_start_ends_the_attempt_with_what_keeps_it(
    nodes: TwoNodes,
) -> None:
    """It has prepared, and can't write how its ranks meet the others."""
    nodes.folders[1].attempt(1).rendezvous.joinpath("in-its-place").mkdir(parents=True)
    nodes.start()
    record = nodes.until("completed")
    kept, _ = record.attempts
    assert "exit code 1, first node gpu2: [Errno 21] Is a directory" in str(kept.detail)
    assert str(kept.last_words).startswith("nodes: gpu2: [Errno 21] Is a directory")
    assert all_losses(nodes) == expected_losses(nodes.steps)


@pytest.mark.long
@pytest.mark.skipif(ROUNDS < 2, reason="TRAINMASTER_FAULT_ROUNDS sets how many kills come")
def test_kills_while_parts_are_gathered_leave_a_whole_checkpoint_or_none(tmp_path: Path) -> None:
    print(f"seed {SEED}, {ROUNDS} kills")
    chosen = random.Random(SEED)
    nodes = TwoNodes(tmp_path, steps=100 + 80 * ROUNDS, step_s=0.02, sharded_bytes=16 << 20)
    gathering = nodes.folders[0].checkpoints / ".gathering"
    moments = {
        "awaited": lambda: any(gathering.glob("*")),
        "arriving": lambda: any(gathering.glob("*/.incomplete-1/*")),
        "arrived": lambda: any(gathering.glob("*/1")),
        "at any time": lambda: chosen.random() < 0.1,
    }
    try:
        nodes.start()
        for number in range(ROUNDS):
            newest = max(nodes.checkpoints(), default=0)
            wait_until(lambda newest=newest: max(nodes.checkpoints(), default=0) > newest, "a save")
            moment = chosen.choice(sorted(moments))
            wait_until(moments[moment], moment)
            running = nodes.processes()
            victim = chosen.choice(sorted(running))
            print(f"round {number}: {victim}, {moment}")
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                nodes.kill(running[victim])
            nodes.start()
            for step in nodes.checkpoints():
                problems = verify(nodes.folders[0].checkpoint(step))
                assert not problems or step not in nodes.checkpoints(), problems
        nodes.until("completed")
    finally:
        nodes.close()
    assert all_losses(nodes) == expected_losses(nodes.steps)
