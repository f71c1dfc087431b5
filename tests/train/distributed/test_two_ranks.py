"""Two ranks of the script for HF Trainer on this machine's CPU, by their real launchers.

Each launch costs some twenty seconds of a processor, so each checks several things. The strategies
that a checkpoint is resumed under are `TRAINMASTER_STRATEGIES`, each with an optimizer behind a
colon where it isn't AdamW; by default the one that shares out the most, and another optimizer.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open
from support.host.run_configs import Config, changed
from support.runs.running_run import standing_after
from support.train.hf_attempts import Attempts
from support.train.optimizers import section
from support.train.ranks_on_cpu import BY_GLOO, CPU_AS_GPU
from support.train.ranks_run import BOUND_S, RanksRun, two_ranks

from trainer_runtime.core.files.manifest import verify
from trainer_runtime.core.processes.rank_exits import RANKS
from trainmaster.home.assets import find_assets

pytestmark = pytest.mark.engine

STRATEGIES = os.environ.get("TRAINMASTER_STRATEGIES", "zero3,zero2:lion").split(",")
STEPS, SAVED_EVERY = 12, 4
LOSS_TERMS = {"optimizer__z_loss": 0.01, "optimizer__label_smoothing": 0.1}
# As a thread that gloo still has does now and then.
_ABORTING_AT_EXIT = """\
import os, sys
class _Aborting:
    def __del__(self, abort=os.abort):
        abort()
if "RANK" in os.environ:
    sys.aborting = _Aborting()
"""
PASSES = 12  # of an attempt that is struck, two a step: those of six steps


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config]:
    """A folder, and the configuration of a run of two ranks, with dropout."""
    folder = tmp_path_factory.mktemp("ranks")
    return folder, two_ranks(folder, Path(__file__).read_bytes(), STEPS, SAVED_EVERY)


@pytest.fixture(scope="module")
def by_hand(base: tuple[Path, Config]) -> Iterator[RanksRun]:
    """Two ranks by train.sh, as it lies in a bundle, with terms in the loss; without dropout, whose
    numbers each rank draws for itself."""
    run = RanksRun(base[0] / "by_hand", changed(base[1], {"model__dropout": 0.0, **LOSS_TERMS}))
    shutil.copy(find_assets().templates / "launch/train.sh", run.folder)
    code = run.run("sh", "train.sh")
    assert code == 0, (run.folder / "log").read_text()
    yield run
    shutil.rmtree(run.folder)


@pytest.mark.smoke
def test_one_rank_continues_what_two_began_with_the_same_batches(
    by_hand: RanksRun, tmp_path: Path
) -> None:
    """Their optimizer's state and their place in the data included."""
    of_one = _continued_by_one(by_hand, ".", tmp_path)
    started = [event for event in by_hand.events() if event["kind"] == "started"]
    assert [event["world_size"] for event in started] == [2]
    decided = {event["what"]: event for event in of_one.events("attempts/1") if "what" in event}
    assert decided["new_random_numbers"]["reason"] == "saved by 2 ranks, resumed by 1"


def test_a_stream_is_in_the_same_order_on_one_rank_and_on_two(
    base: tuple[Path, Config], tmp_path: Path
) -> None:
    changes = {"model__dropout": 0.0, "data__form": "stream", "data__prepare": "stream"}
    of_two = RanksRun(tmp_path / "two", changed(base[1], changes))
    assert of_two.start(1).wait(timeout=BOUND_S) == 0, of_two.log(1)
    _continued_by_one(of_two, "attempts/1", tmp_path)


def test_ranks_continue_bit_by_bit_after_a_kill_and_save_at_sigterm(
    base: tuple[Path, Config], tmp_path: Path
) -> None:
    run = RanksRun(tmp_path / "run", base[1])
    run.begin_ranks_with(standing_after(PASSES, 1, 2))

    killed = run.start(1)
    run.reach(killed, 1, SAVED_EVERY + 2)
    os.kill(run.rank_pid(1, 1), signal.SIGKILL)
    assert killed.wait(timeout=BOUND_S) == -signal.SIGKILL
    _assert_gone(run, 1)

    asked = run.start(2)
    run.reach(asked, 2, 2 * SAVED_EVERY + 1)
    asked.terminate()
    assert asked.wait(timeout=BOUND_S) == 75, run.log(2)
    saved_at = run.steps_stored()[-1]
    assert saved_at > 2 * SAVED_EVERY
    for rank in (0, 1):
        own = (run.attempt(2) / RANKS / f"{rank}.log").read_text().splitlines()
        assert set(own) <= set(run.log(2).splitlines()) and (own or rank)
    _assert_whole(run)
    _assert_the_same_steps(run, at_least=2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_that_is_shared_out_is_saved_resumed_and_exported(
    base: tuple[Path, Config], tmp_path: Path, strategy: str
) -> None:
    """What all ranks have written together is one checkpoint; the export is the whole model."""
    strategy, _, optimizer = strategy.partition(":")
    changes = {"compute__strategy": strategy, "optimizer": section(optimizer or "adamw")}
    run = RanksRun(tmp_path / "run", changed(base[1], changes))
    own = CPU_AS_GPU if strategy == "fsdp" else BY_GLOO
    run.begin_ranks_with(own + _ABORTING_AT_EXIT + standing_after(PASSES, 1))

    asked = run.start(1)
    run.reach(asked, 1, SAVED_EVERY + 2)
    asked.terminate()
    assert asked.wait(timeout=BOUND_S) == 75, run.log(1)
    assert "FAILED" not in run.log(1)  # as launchers say of ranks
    _assert_whole(run)

    # Not from where it was saved last, so that some steps are trained again.
    again = run.start(2, resume={"mode": "latest", "candidates": [SAVED_EVERY]})
    assert again.wait(timeout=BOUND_S) == 0, run.log(2)
    _assert_the_same_steps(run, at_least=2)
    _assert_whole(run)
    parts = "pytorch_model_fsdp_0" if strategy == "fsdp" else f"global_step{STEPS}"
    assert len(list((run.checkpoint(STEPS) / parts).iterdir())) >= 2
    assert verify(run.folder / "final") == []
    with safe_open(run.folder / "final/model.safetensors", "pt") as exported:
        assert exported.get_slice("transformer.h.1.mlp.c_fc.weight").get_shape() == [32, 64]


def _continued_by_one(of_two: RanksRun, attempt: str, folder: Path) -> RanksRun:
    """A run of one rank from the checkpoint of two on; its losses are theirs."""
    changes = {"compute__processes": 1, "compute__strategy": "single", "batch__accumulation": 4}
    of_one = RanksRun(folder / "one", changed(of_two.config, changes))
    shutil.copytree(of_two.checkpoint(SAVED_EVERY), of_one.checkpoint(SAVED_EVERY))
    resume = {"mode": "latest", "candidates": [SAVED_EVERY]}
    in_this_process = Attempts()
    code = in_this_process(of_one, of_one.attempt_config(number=1, resume=resume))
    assert code == 0, in_this_process.errors

    one, two = of_one.curve("attempts/1"), of_two.curve(attempt)

    assert len(one) == STEPS - SAVED_EVERY + 2
    for key, values in one.items():
        assert two[key] == pytest.approx(values, rel=1e-5), key
    return of_one


def _assert_the_same_steps(run: RanksRun, at_least: int) -> None:
    """The second attempt's recomputed steps equal the first's, bit by bit."""
    first, second = run.curve("attempts/1"), run.curve("attempts/2")
    both = first.keys() & second.keys()
    assert len(both) >= at_least
    assert {key: second[key] for key in both} == {key: first[key] for key in both}


def _assert_gone(run: RanksRun, number: int) -> None:
    for rank in (0, 1):
        with pytest.raises(ProcessLookupError):
            os.kill(run.rank_pid(number, rank), 0)


def _assert_whole(run: RanksRun) -> None:
    """Every checkpoint verifies, and holds each rank's random numbers."""
    for step in run.steps_stored():
        assert verify(run.checkpoint(step)) == []
        names = {path.name for path in run.checkpoint(step).iterdir()}
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= names
