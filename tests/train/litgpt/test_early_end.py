"""LitGPT's loops with a z-loss, averaged weights and an early end, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.host.run_configs import Config, changed
from support.train import early_end
from support.train.early_end import ENDS, MIDDLE
from support.train.litgpt_training import Run, assert_same_tensors, pretraining

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return changed(pretraining(tmp_path_factory.mktemp("early")), early_end.CHANGES)


def test_an_early_end_is_the_same_after_a_kill_and_takes_no_further_step(
    base: Config, tmp_path: Path
) -> None:
    straight, resumed, over = (Run(tmp_path / name, base) for name in ("a", "b", "c"))
    assert straight.train() == 0
    early_end.assert_ended_early(straight.folder, straight.events())
    saved = straight.folder / f"checkpoints/step-{ENDS:08d}/lit_model.pth"
    weights = torch.load(saved, weights_only=True)["model"]
    early_end.assert_averages_differ(straight.folder, weights)

    early_end.take_checkpoint(straight.folder, resumed.folder, MIDDLE)
    assert resumed.train(number=2) == 0
    events = resumed.events("attempts/2")
    early_end.assert_same_from(MIDDLE, straight.events(), events)
    assert early_end.averages(resumed.folder) == early_end.averages(straight.folder)
    assert_same_tensors(resumed.model(), straight.model())

    early_end.take_checkpoint(straight.folder, over.folder, ENDS)
    assert over.train(number=2) == 0
    assert early_end.values_of(over.events("attempts/2")) == {}
    assert_same_tensors(over.model(), straight.model())
