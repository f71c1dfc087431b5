"""Each optimizer in HF Trainer, on a tiny model, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import LOSSES, RunFolder, prepared_config
from support.train import optimizers
from support.train.hf_attempts import Attempts
from support.train.operator_threads import operators_in_this_thread_alone

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.train.checkpoints.tensors import read_tensors

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("optimizers")
    config = prepared_config(folder, "hf", Path(__file__).read_bytes() * 8)
    return changed(config, optimizers.CHANGES)


def run_in(folder: Path, base: Config, **changes: Any) -> RunFolder:
    return RunFolder(folder, changed(base, changes))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimizer_learns_and_continues_exactly(
    name: str, base: Config, tmp_path: Path
) -> None:
    attempt, section = Attempts(), optimizers.section(name)
    straight, resumed = (
        run_in(tmp_path / of, base, optimizer=section) for of in ("straight", "resumed")
    )
    with operators_in_this_thread_alone():
        assert attempt(straight) == 0, attempt.errors
        optimizers.assert_it_learns(straight)
        optimizers.assert_continues_exactly(straight, resumed, attempt, *LOSSES)
    assert resumed.weights() == straight.weights()


def test_a_group_has_its_own_rate_and_groups_may_change_at_a_resume(
    base: Config, tmp_path: Path
) -> None:
    attempt, section = Attempts(), optimizers.section("muon")
    groups = [{"match": "*.wte.weight", "lr_scale": 0.0, "weight_decay": 0.0}]
    changes = {"optimizer": {**section, "groups": groups}, "steps": 20, "checkpoint__every": 10}
    run = run_in(tmp_path / "run", base, **changes)
    assert attempt(run) == 0, attempt.errors
    run.config = changed(run.config, {"optimizer": section, "steps": 30})
    assert attempt(run, run.attempt_config(number=2)) == 0, attempt.errors
    started = next(event for event in run.events("attempts/2") if event["kind"] == "started")
    assert started["resumed_from"] == 20
    embeddings, blocks = (
        [read_tensors(run.folder / f"checkpoints/step-{step:08d}/model.safetensors")[name]
         for step in (10, 20, 30)]
        for name in ("transformer.wte.weight", "transformer.h.0.mlp.c_fc.weight")
    )  # fmt: skip
    assert embeddings[0].equal(embeddings[1])
    assert not embeddings[1].equal(embeddings[2])
    assert not blocks[0].equal(blocks[1])
