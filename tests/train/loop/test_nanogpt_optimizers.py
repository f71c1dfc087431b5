"""nanogpt's script with each optimizer, on a tiny model, in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, TinyRun, prepared_config
from support.plan.rendered import load_script, script_text
from support.session.tiers import at_length
from support.train import optimizers
from support.train.litgpt_training import as_a_process_of_its_own

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.train.attempt.exit_codes import ending
from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.loop.run import TrainingRun
from trainer_runtime.train.loop.signals import StopSignal

# In these each way of keeping state has one.
_SHORTLY = ("adamw", "adafactor", "muon", "schedule_free")
_OTHERS = [name for name in OPTIMIZERS if name not in _SHORTLY]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("optimizers")
    text = Path(__file__).read_bytes() + script_text("nanogpt", style="llama").encode()
    return changed(prepared_config(folder, "nanogpt", text), optimizers.CHANGES)


@pytest.fixture
def make(tmp_path: Path, base: Config) -> Callable[..., RunFolder]:
    def make_run(name: str, kind: type[RunFolder] = RunFolder, **changes: Any) -> RunFolder:
        return kind(tmp_path / name, changed(base, changes))

    return make_run


def train(run: RunFolder, config: str = "config.json") -> int:
    def whole() -> None:
        attempt = TrainingRun(Path(config), StopSignal())
        try:
            load_script(run.folder).train(attempt)
        finally:
            attempt.close()

    with as_a_process_of_its_own(run.folder):
        return ending(whole)


@pytest.mark.parametrize("name", [*_SHORTLY, *at_length(*_OTHERS)])
def test_each_optimizer_learns_and_continues_exactly(
    name: str, make: Callable[..., RunFolder]
) -> None:
    straight = make("straight", optimizer=optimizers.section(name))
    assert train(straight) == 0
    optimizers.assert_it_learns(straight)
    resumed = make("resumed", optimizer=optimizers.section(name))
    optimizers.assert_continues_exactly(straight, resumed, train, *LOSSES)
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
    assert train(run) == 0
    saved = read_tensors(run.folder / f"checkpoints/step-{optimizers.STEPS:08d}/model.safetensors")
    final = read_tensors(run.folder / "final/model.safetensors")
    name, exported = "blocks.0.feed_forward.widen.weight", "transformer.h.0.mlp.c_fc.weight"
    assert saved[name].equal(final[exported].T)


def test_a_group_that_matches_nothing_ends_the_start_by_name(
    make: Callable[..., RunFolder], capfd: pytest.CaptureFixture[str]
) -> None:
    section = {**optimizers.section("adamw"), "groups": [{"match": "layers.*", "lr_scale": 0.5}]}
    run = make("run", optimizer=section)
    assert train(run) == 77
    problem = capfd.readouterr().err
    assert "no parameter is named layers.*" in problem
    assert "blocks.0.attention.to_heads.weight" in problem
