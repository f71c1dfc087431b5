"""A profile of ten steps of HF's Trainer, which changes nothing of what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.train import profiled
from support.train.hf_attempts import Attempts

pytestmark = pytest.mark.engine


def test_a_profile_changes_no_loss_and_no_weight(tmp_path: Path) -> None:
    config = prepared_config(tmp_path, "hf", Path(__file__).read_bytes() * 8)
    config = changed(config, {"steps": 16, "eval": {"every_steps": 6, "batches": 2}})
    plain, run = RunFolder(tmp_path / "plain", config), RunFolder(tmp_path / "run", config)
    profiled.ask(run)
    attempt = Attempts()
    assert attempt(plain) == 0, attempt.errors
    assert attempt(run) == 0, attempt.errors
    assert run.values_by_step(*LOSSES) == plain.values_by_step(*LOSSES)
    assert run.weights() == plain.weights()
    (profile,) = profiled.profiles(run)
    profiled.assert_plausible(profile)
