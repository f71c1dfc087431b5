"""nanogpt's script with each optimizer, on a tiny model, in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.host.run_configs import Config
from support.host.tiny_training import LOSSES, RunFolder, TinyRun
from support.session.tiers import at_length
from support.train import optimizers
from support.train.nanogpt_attempts import config_on, maker, train_here

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.train.checkpoints.tensors import read_tensors

# In these each way of keeping state has one.
_SHORTLY = ("adamw", "adafactor", "muon", "schedule_free")
_OTHERS = [name for name in OPTIMIZERS if name not in _SHORTLY]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return config_on(tmp_path_factory.mktemp("optimizers"), __file__, **optimizers.CHANGES)


@pytest.fixture
def make(tmp_path: Path, base: Config) -> Callable[..., RunFolder]:
    return maker(tmp_path, base)


@pytest.mark.parametrize("name", [*_SHORTLY, *at_length(*_OTHERS)])
def test_each_optimizer_learns_and_continues_exactly(
    name: str, make: Callable[..., RunFolder]
) -> None:
    straight = make("straight", optimizer=optimizers.section(name))
    assert train_here(straight) == 0
    optimizers.assert_it_learns(straight)
    resumed = make("resumed", optimizer=optimizers.section(name))
    optimizers.assert_continues_exactly(straight, resumed, train_here, *LOSSES)
    assert resumed.weights() == straight.weights()


@pytest.mark.long
def test_a_killed_training_with_the_most_state_continues_exactly(
    make: Callable[..., TinyRun],
) -> None:
    section = optimizers.section("schedule_free")
    changes = {"optimizer": section, "steps": 30, "checkpoint__every": 7}
    straight, killed = (make(of, TinyRun, **changes) for of in ("straight", "killed"))
    assert straight.train()[0] == 0
    assert killed.end_at(17, signal.SIGKILL) == -signal.SIGKILL
    assert killed.train()[0] == 0
    assert killed.values_by_step(*LOSSES) == straight.values_by_step(*LOSSES)
    assert killed.weights() == straight.weights()


def test_a_schedule_free_checkpoint_holds_the_weights_that_were_evaluated(
    make: Callable[..., RunFolder],
) -> None:
    run = make("run", optimizer=optimizers.section("schedule_free"), checkpoint__keep_latest=3)
    assert train_here(run) == 0
    saved = read_tensors(run.folder / f"checkpoints/step-{optimizers.STEPS:08d}/model.safetensors")
    final = read_tensors(run.folder / "final/model.safetensors")
    name, exported = "blocks.0.feed_forward.widen.weight", "transformer.h.0.mlp.c_fc.weight"
    assert saved[name].equal(final[exported].T)


def test_a_group_that_matches_nothing_ends_the_start_by_name(
    make: Callable[..., RunFolder], capfd: pytest.CaptureFixture[str]
) -> None:
    section = {**optimizers.section("adamw"), "groups": [{"match": "layers.*", "lr_scale": 0.5}]}
    run = make("run", optimizer=section)
    assert train_here(run) == 77
    problem = capfd.readouterr().err
    assert "no parameter is named layers.*" in problem
    assert "blocks.0.attention.to_heads.weight" in problem
