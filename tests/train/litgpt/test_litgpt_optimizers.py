"""Each optimizer in LitGPT's own loop, on a tiny model, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import RunFolder
from support.train import optimizers
from support.train.litgpt_training import KEYS, Run, assert_same_tensors, pretraining

from trainer_runtime.core.config.optimizers import OPTIMIZERS

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return changed(pretraining(tmp_path_factory.mktemp("optimizers")), optimizers.CHANGES)


def train(run: RunFolder, config: str) -> int:
    assert isinstance(run, Run)
    return run.train_by(config)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns_and_continues_exactly(
    name: str, base: Config, tmp_path: Path
) -> None:
    section = optimizers.section(name)
    straight, resumed = (
        Run(tmp_path / of, changed(base, {"optimizer": section})) for of in ("straight", "resumed")
    )
    assert straight.train() == 0
    optimizers.assert_it_learns(straight)
    optimizers.assert_continues_exactly(straight, resumed, train, *KEYS)
    assert_same_tensors(resumed.model(), straight.model())


def test_a_group_has_its_own_rate(base: Config, tmp_path: Path) -> None:
    groups = [{"match": "transformer.wte.weight", "lr_scale": 0.0, "weight_decay": 0.0}]
    section = {**optimizers.section("muon"), "groups": groups}
    run = Run(
        tmp_path / "run", changed(base, {"optimizer": section, "steps": 8, "checkpoint__every": 4})
    )
    assert run.train() == 0
    early, late = (
        torch.load(run.folder / f"checkpoints/step-{step:08d}/lit_model.pth", weights_only=True)
        for step in (4, 8)
    )
    frozen, trained = "transformer.wte.weight", "transformer.h.0.attn.qkv.weight"
    assert early["model"][frozen].equal(late["model"][frozen])
    assert not early["model"][trained].equal(late["model"][trained])
    assert trained in late["optimizer"]["state"]
