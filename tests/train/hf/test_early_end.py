"""HF Trainer with a z-loss, averaged weights and an early end, in this process."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import RunFolder, prepared_config
from support.train import early_end
from support.train.early_end import ENDS
from support.train.hf_attempts import Attempts, CrashError, crash

from trainer_runtime.core.answers.sampled import SampleRequest
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.checkpoints.tensors import read_tensors
from trainer_runtime.train.loop.sampling import SavedModel, weights_folder

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("early")
    config = prepared_config(folder, "hf", Path(__file__).read_bytes() * 8)
    return changed(config, early_end.CHANGES)


@pytest.fixture(scope="module")
def straight(base: Config, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run, attempt = RunFolder(tmp_path_factory.mktemp("straight") / "run", base), Attempts()
    assert attempt(run) == 0, attempt.errors
    return run


def test_a_training_ends_early_and_reports_the_plain_loss(straight: RunFolder) -> None:
    early_end.assert_ended_early(straight.folder, straight.events())
    weights = read_tensors(straight.folder / f"checkpoints/step-{ENDS:08d}/model.safetensors")
    early_end.assert_averages_differ(straight.folder, weights)


def test_a_killed_training_ends_at_the_same_step_with_the_same_averages(
    straight: RunFolder, base: Config, tmp_path: Path
) -> None:
    killed, attempt = RunFolder(tmp_path / "killed", base), Attempts()
    with pytest.raises(CrashError):
        attempt(killed, disturbance=(12, crash))
    assert attempt(killed) == 0, attempt.errors
    assert early_end.values_of(killed.events()) == early_end.values_of(straight.events())
    assert killed.weights() == straight.weights()
    assert early_end.averages(killed.folder) == early_end.averages(straight.folder)


def test_one_that_was_killed_at_its_early_end_takes_no_further_step(
    straight: RunFolder, base: Config, tmp_path: Path
) -> None:
    over, attempt = RunFolder(tmp_path / "over", base), Attempts()
    early_end.take_checkpoint(straight.folder, over.folder, ENDS)
    assert attempt(over, over.attempt_config(number=2)) == 0, attempt.errors
    events = over.events("attempts/2")
    assert early_end.values_of(events) == {}
    assert early_end.progress_of(events).stopped_early is not None
    assert over.weights() == straight.weights()


def test_texts_are_written_by_the_averages(straight: RunFolder) -> None:
    from trainer_runtime.train.hf.text_model import load

    config = RunConfig.parse(straight.config)
    with contextlib.chdir(straight.folder):
        logits = {}
        for start in ("latest", "ema"):
            folder = weights_folder(Path.cwd(), start)
            request = SampleRequest("def", start)
            model = load(SavedModel(config, Path.cwd(), folder, request, "cpu"))
            logits[start] = model.next_logits([1, 2, 3])
    assert not logits["latest"].equal(logits["ema"])
