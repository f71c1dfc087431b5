"""nanogpt's script with a z-loss, averaged weights and an early end, in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import RunFolder, TinyRun, prepared_config
from support.plan.rendered import load_script, script_text
from support.train import early_end
from support.train.early_end import ENDS
from support.train.litgpt_training import as_a_process_of_its_own

from trainer_runtime.train.attempt.exit_codes import ending
from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.loop.run import TrainingRun
from trainer_runtime.train.loop.sampling import trained_model
from trainer_runtime.train.loop.signals import StopSignal


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("early")
    text = Path(__file__).read_bytes() + script_text("nanogpt", style="gpt2").encode()
    return changed(prepared_config(folder, "nanogpt", text), early_end.CHANGES)


@pytest.fixture(scope="module")
def straight(base: Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = RunFolder(tmp_path_factory.mktemp("straight") / "run", base)
    assert train(run) == 0
    return run


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


def test_a_training_ends_early_and_reports_the_plain_loss(straight: RunFolder) -> None:
    early_end.assert_ended_early(straight.folder, straight.events())
    weights = read_tensors(straight.folder / f"checkpoints/step-{ENDS:08d}/model.safetensors")
    early_end.assert_averages_differ(straight.folder, weights)


def test_a_killed_training_ends_at_the_same_step_with_the_same_averages(
    straight: RunFolder, make: Callable[..., TinyRun]
) -> None:
    killed = make("killed", TinyRun)
    assert killed.end_at(12, signal.SIGKILL) == -signal.SIGKILL
    assert train(killed) == 0
    assert early_end.values_of(killed.events()) == early_end.values_of(straight.events())
    assert killed.weights() == straight.weights()
    assert early_end.averages(killed.folder) == early_end.averages(straight.folder)


def test_one_that_was_killed_at_its_early_end_takes_no_further_step(
    straight: RunFolder, make: Callable[..., RunFolder]
) -> None:
    over = make("over")
    early_end.take_checkpoint(straight.folder, over.folder, ENDS)
    assert train(over, over.attempt_config(number=2)) == 0
    events = over.events("attempts/2")
    assert early_end.values_of(events) == {}
    assert early_end.progress_of(events).stopped_early is not None
    assert over.weights() == straight.weights()


def test_a_resume_by_a_person_gives_it_its_patience_again(
    straight: RunFolder, make: Callable[..., RunFolder]
) -> None:
    resumed = make("resumed")
    early_end.take_checkpoint(straight.folder, resumed.folder, ENDS)
    assert train(resumed, resumed.attempt_config(number=2, reason="resume")) == 0
    steps = [step for _, step in early_end.values_of(resumed.events("attempts/2"))]
    assert (min(steps), max(steps)) == (ENDS + 1, ENDS + 10)


def test_the_averages_of_the_newest_checkpoint_are_the_model_from_ema(straight: RunFolder) -> None:
    averaged = trained_model(straight.folder, "ema")
    assert averaged.origin.name == f"step-{ENDS:08d}"
    saved = read_tensors(averaged.origin / "ema.safetensors")
    assert all(averaged.weights[name].equal(tensor) for name, tensor in saved.items())
