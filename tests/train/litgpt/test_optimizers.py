"""Each optimizer in LitGPT's own loop, on a tiny model, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
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
