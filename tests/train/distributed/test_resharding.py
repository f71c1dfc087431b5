"""Ranks that share a model out, resumed by another number of them: real trainings over gloo.

`TRAINMASTER_STRATEGIES` selects strategies; by default each layout of checkpoints is tried once.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.train.ranks_on_cpu import BY_GLOO, CPU_AS_GPU
from support.train.ranks_run import BOUND_S, RanksRun, two_ranks

from trainer_runtime.core.files.manifest import verify

pytestmark = pytest.mark.engine

STRATEGIES = os.environ.get("TRAINMASTER_STRATEGIES", "fsdp,zero2,zero3").split(",")
STEPS, SAVED_EVERY = 8, 4
SEQUENCES = 8  # of a step
RESUME = {"mode": "latest", "candidates": [SAVED_EVERY]}
# Ends rank 0 of the first attempt while DeepSpeed writes the parameters that it has put together.
STRUCK = """\
import os, signal, sys

def strike(event, arguments):
    if event == "os.mkdir" and "/zero/" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)

if os.environ.get("RANK") == "0" and "attempts/1/" in sys.orig_argv[-1]:
    sys.addaudithook(strike)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Without dropout, whose numbers each rank draws for itself; the weights decay much, so that
    it counts which of them do."""
    folder = tmp_path_factory.mktemp("resharding")
    config = two_ranks(folder, Path(__file__).read_bytes() * 3, STEPS, SAVED_EVERY)
    return changed(config, {"model__dropout": 0.0, "optimizer__weight_decay": 2.0})


def of_ranks(folder: Path, base: Config, strategy: str, ranks: int) -> RanksRun:
    """A run with the same steps as any other number of ranks."""
    shape: dict[str, Any] = {"compute__strategy": strategy, "compute__processes": ranks}
    shape |= {"batch__accumulation": SEQUENCES // 2 // ranks, "eval__batch_size": 2}
    return RanksRun(folder, changed(base, shape))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_number_of_ranks_continues_with_the_same_losses(
    base: Config, tmp_path: Path, strategy: str
) -> None:
    """Also after a kill while DeepSpeed converts the checkpoint, which stays whole."""
    before, after = (1, 2) if strategy == "zero2" else (2, 1)
    own = CPU_AS_GPU if strategy == "fsdp" else BY_GLOO
    whole = of_ranks(tmp_path / "whole", base, strategy, before)
    whole.begin_ranks_with(own)
    assert whole.start(1).wait(timeout=BOUND_S) == 0, whole.log(1)

    other = of_ranks(tmp_path / "other", base, strategy, after)
    other.begin_ranks_with(own + (STRUCK if strategy == "zero3" else ""))
    shutil.copytree(whole.checkpoint(SAVED_EVERY), other.checkpoint(SAVED_EVERY))
    if strategy == "zero3":
        assert other.start(1, resume=RESUME).wait(timeout=BOUND_S) == -signal.SIGKILL, other.log(1)
        assert any(other.folder.glob("checkpoints/.writing-*/universal-0/global_step*"))
        assert verify(other.checkpoint(SAVED_EVERY)) == []
    assert other.start(2, resume=RESUME).wait(timeout=BOUND_S) == 0, other.log(2)

    found, expected = other.curve("attempts/2"), whole.curve("attempts/1")
    assert len(found) == STEPS - SAVED_EVERY + 1
    for key, values in found.items():
        assert values == pytest.approx(expected[key], rel=1e-5), key
    decided = {event["what"]: event for event in other.events("attempts/2") if "what" in event}
    reason = f"saved by {before} ranks, resumed by {after}"
    assert decided["new_random_numbers"]["reason"] == reason
    assert other.steps_stored() == [SAVED_EVERY, STEPS]
    assert [verify(other.checkpoint(step)) for step in other.steps_stored()] == [[], []]
    assert not any(other.folder.glob("checkpoints/.writing-*"))
