"""A profile of ten steps of LitGPT's loop, which changes nothing of what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.run_configs import changed
from support.train import profiled
from support.train.litgpt_training import Run, assert_same_tensors, pretraining

pytestmark = pytest.mark.engine


def test_a_profile_changes_no_loss_and_no_weight(tmp_path: Path) -> None:
    config = changed(pretraining(tmp_path), {"steps": 16})
    plain, run = Run(tmp_path / "plain", config), Run(tmp_path / "run", config)
    profiled.ask(run)
    assert plain.train() == run.train() == 0
    assert run.values_by_step() == plain.values_by_step()
    assert_same_tensors(run.model(), plain.model())
    (profile,) = profiled.profiles(run)
    profiled.assert_plausible(profile)
