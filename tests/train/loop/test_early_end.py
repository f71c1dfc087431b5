"""nanogpt's script with a z-loss, averaged weights and an early end, in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.host.run_configs import Config
from support.host.tiny_training import RunFolder, TinyRun
from support.train import early_end
from support.train.early_end import ENDS
from support.train.nanogpt_attempts import config_on, maker, train_here

from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.loop.sampling import trained_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return config_on(tmp_path_factory.mktemp("early"), __file__, "gpt2", **early_end.CHANGES)


@pytest.fixture(scope="module")
def straight(base: Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = RunFolder(tmp_path_factory.mktemp("straight") / "run", base)
    assert train_here(run) == 0
    return run


@pytest.fixture
def make(tmp_path: Path, base: Config) -> Callable[..., RunFolder]:
    return maker(tmp_path, base)


def test_a_training_ends_early_and_reports_the_plain_loss(straight: RunFolder) -> None:
    early_end.assert_ended_early(straight.folder, straight.events())
    weights = read_tensors(straight.folder / f"checkpoints/step-{ENDS:08d}/model.safetensors")
    early_end.assert_averages_differ(straight.folder, weights)


def test_a_killed_training_ends_at_the_same_step_with_the_same_averages(
    straight: RunFolder, make: Callable[..., TinyRun]
) -> None:
    killed = make("killed", TinyRun)
    assert killed.end_at(12, signal.SIGKILL) == -signal.SIGKILL
    assert train_here(killed) == 0
    assert early_end.values_of(killed.events()) == early_end.values_of(straight.events())
    assert killed.weights() == straight.weights()
    assert early_end.averages(killed.folder) == early_end.averages(straight.folder)


def test_one_that_was_killed_at_its_early_end_takes_no_further_step(
    straight: RunFolder, make: Callable[..., RunFolder]
) -> None:
    over = make("over")
    early_end.take_checkpoint(straight.folder, over.folder, ENDS)
    assert train_here(over, over.attempt_config(number=2)) == 0
    events = over.events("attempts/2")
    assert early_end.values_of(events) == {}
    assert early_end.progress_of(events).stopped_early is not None
    assert over.weights() == straight.weights()


def test_a_resume_by_a_person_gives_it_its_patience_again(
    straight: RunFolder, make: Callable[..., RunFolder]
) -> None:
    resumed = make("resumed")
    early_end.take_checkpoint(straight.folder, resumed.folder, ENDS)
    assert train_here(resumed, resumed.attempt_config(number=2, reason="resume")) == 0
    steps = [step for _, step in early_end.values_of(resumed.events("attempts/2"))]
    assert (min(steps), max(steps)) == (ENDS + 1, ENDS + 10)


def test_the_averages_of_the_newest_checkpoint_are_the_model_from_ema(straight: RunFolder) -> None:
    averaged = trained_model(straight.folder, "ema")
    assert averaged.origin.name == f"step-{ENDS:08d}"
    saved = read_tensors(averaged.origin / "ema.safetensors")
    assert all(averaged.weights[name].equal(tensor) for name, tensor in saved.items())
