from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.core.journal_records import lines
from support.host.hanging_processes import Hanging

from trainer_runtime.host.files.files import write_json
from trainer_runtime.host.watch.inspection import Inspection, inspect

pytestmark = pytest.mark.slow

_COLLECTIVE = """
import os, pathlib, time
import torch
import torch.distributed as dist

def train():
    rank = dist.get_rank()
    pathlib.Path(f"ready{rank}").touch()
    if rank == 1:
        OTHER
    dist.all_reduce(torch.ones(4))

def prepare_forever():
    while True:
        time.sleep(0.05)

def next_batch(source):
    return open(source).read()

# By a file: a port that is free now may be somebody else's once PyTorch is loaded.
store = f"file://{os.getcwd()}/store"
dist.init_process_group("gloo", store, rank=int(os.environ["RANK"]), world_size=2)
train()
"""
_LOADER = """
import os, pathlib
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        pathlib.Path("ready").touch()
        return open("shard").read()

os.mkfifo("shard")

def main():
    for batch in DataLoader(Files(), num_workers=2, multiprocessing_context="fork"):
        pass

if __name__ == "__main__":
    main()
"""
_SAVES = """
import os, pathlib
import torch

os.mkfifo("checkpoint.pt")
pathlib.Path("ready").touch()
torch.save({"weights": torch.ones(4)}, "checkpoint.pt")
"""
_SLOW = """
import json, os, pathlib, time

events = open("attempts/1/events.jsonl", "a", buffering=1)

def emit(seq, step, ago):
    event = {"v": 1, "seq": seq, "t": time.time() - ago, "kind": "metric", "step": step}
    events.write(json.dumps({**event, "values": {"loss": 2.0}}) + "\\n")

for step in range(1, 40):
    emit(step, step, 60.0 - step / 10)
step = 40
while True:
    emit(step, step, 0.0)
    pathlib.Path("ready").touch()
    time.sleep(3.0)
    step += 1
"""
_COMPUTES = """
import pathlib

def mix(values):
    return [value * 1.0001 for value in values]

def norm(values):
    return sum(values)

pathlib.Path("ready").touch()
values = list(range(2000))
while True:
    values = mix(values)
    norm(values)
"""
_NAMED_AFTER_A_SECRET = """
import pathlib

def hf_swordfish():
    pathlib.Path("ready").touch()
    open("shard").read()

hf_swordfish()
"""


@pytest.fixture
def hanging(tmp_path: Path) -> Hanging:
    return Hanging(tmp_path)


def two_ranks(hanging: Hanging, other: str, reason: str) -> Inspection:
    """An inspection of two ranks, one of which does something else, that gives this reason."""
    for rank in range(2):
        environment = {"WORLD_SIZE": "2", "RANK": str(rank)}
        hanging.start(_COLLECTIVE.replace("OTHER", other), environment=environment)
    hanging.wait_for("ready0")
    hanging.wait_for("ready1")
    return until_still(
        hanging,
        lambda found: found.verdict.confidence >= 0.85 and found.verdict.reason == reason,
    )


def until_still(
    hanging: Hanging, met: Callable[[Inspection], bool], *, allow_py_spy: bool = False
) -> Inspection:
    """An inspection once the processes have come to where they hang, at most the thirtieth."""
    for _ in range(30):
        found = inspect(hanging.run, 1, allow_py_spy=allow_py_spy)
        if met(found):
            return found
    raise AssertionError(f"{found.verdict} {found.text} {hanging.log()}")


def test_a_rank_that_does_not_join_the_collective_is_named(hanging: Hanging) -> None:
    with hanging:
        found = two_ranks(hanging, "time.sleep(600)", "rank_not_joined")
        assert (found.verdict.code, found.verdict.rank) == ("hang_collective", 1)
        assert found.world_size == 2
        assert "train1.py" in found.verdict.evidence[0]
        assert "all_reduce" in found.verdict.evidence[1]


@pytest.mark.long
def test_a_collective_other_than_everybody_elses_is_named(hanging: Hanging) -> None:
    with hanging:
        other = "dist.broadcast(torch.ones(4), 0); dist.barrier()"
        found = two_ranks(hanging, other, "different_collectives")
        assert found.verdict.code == "hang_collective"


@pytest.mark.long
def test_the_data_that_one_rank_waits_for_is_the_cause(hanging: Hanging) -> None:
    with hanging:
        hanging.fifo("shard")
        found = two_ranks(hanging, 'next_batch("shard")', "rank_waits_for_data")
        assert (found.verdict.code, found.verdict.rank) == ("hang_data", 1)


def test_a_loader_whose_workers_are_blocked_is_hang_data(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_LOADER)
        hanging.wait_for("ready")

        def workers(found: Inspection) -> list[str]:
            return [one.main[0].function for one in found.ranks[0].workers if one.main]

        until_still(
            hanging,
            lambda found: found.verdict.code == "hang_data" and "__getitem__" in workers(found),
        )


def test_a_save_that_does_not_end_is_hang_checkpoint(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_SAVES)
        hanging.wait_for("ready")
        until_still(
            hanging,
            lambda found: (
                found.verdict.code == "hang_checkpoint" and found.verdict.confidence >= 0.85
            ),
        )


def test_a_slow_step_is_not_a_hang(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_SLOW)
        hanging.wait_for("ready")
        found = until_still(hanging, lambda found: (found.pace.recent_s or 0) > 2.5)
        assert found.verdict.code == "slow_not_hung"
        assert found.verdict.reason == "slow_steps"


def test_a_computation_without_steps_is_not_a_hang(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_COMPUTES)
        hanging.wait_for("ready")
        until_still(hanging, lambda found: found.verdict.code == "slow_not_hung")


def test_a_training_that_makes_progress_is_moving(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_SLOW.replace("3.0", "0.1"))
        hanging.wait_for("ready")
        until_still(hanging, lambda found: found.verdict.code == "moving" and found.pace.gained > 3)


def test_a_trainer_that_does_not_answer_is_read_by_py_spy(hanging: Hanging) -> None:
    with hanging:
        hanging.start(_SAVES, answers=False)
        hanging.wait_for("ready")
        until_still(
            hanging,
            lambda found: found.verdict.code == "hang_checkpoint" and found.py_spy == "used",
        )


def test_a_foreign_process_is_left_alone_unless_it_is_allowed(hanging: Hanging) -> None:
    with hanging:
        hanging.run.config.write_text(json.dumps({"framework": "attached"}))
        hanging.start(_SAVES, answers=False)
        hanging.wait_for("ready")
        assert inspect(hanging.run, 1).py_spy == "not_allowed"
        until_still(hanging, lambda found: found.py_spy == "used", allow_py_spy=True)


@pytest.mark.attack
def test_a_secret_that_stands_in_a_stack_is_masked_as_it_is_kept(hanging: Hanging) -> None:
    """What a program compiles from a text of its own names files and functions as it likes."""
    write_json(hanging.run.secrets, {"values": {"KEY": "hf_swordfish"}})
    hanging.fifo("shard")
    with hanging:
        hanging.start(_NAMED_AFTER_A_SECRET)
        hanging.wait_for("ready")
        found = until_still(hanging, lambda found: found.text.count("train0.py") >= 2)
    assert "in ************" in found.text
    assert hanging.folder.stacks.read_text() == found.text


def test_an_attempt_without_processes_says_so(hanging: Hanging) -> None:
    hanging.folder.events.write_bytes(b"".join(lines([("started", {"step": 0})])))
    found = inspect(hanging.run, 1)
    assert (found.verdict.reason, found.ranks, found.text) == ("no_process", [], "")
