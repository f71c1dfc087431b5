"""Optimizers with much state of their own, in each framework, killed and continued bit for bit."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import TinyRun, prepared_config
from support.train import optimizers
from support.train.litgpt_training import pretraining
from support.train.preference_data import make_run, pairs, save_tiny_model, write_rows

from trainer_runtime.train.checkpoints.tensors import read_tensors

pytestmark = pytest.mark.engine

STEPS, SAVED_EVERY, KILLED_AT = 16, 5, 12
CHANGES: Mapping[str, object] = {
    "steps": STEPS,
    "eval__every_steps": 8,
    "checkpoint__every": SAVED_EVERY,
}


def of_hf(folder: Path) -> Config:
    return prepared_config(folder, "hf", Path(__file__).read_bytes() * 8)


def of_trl(folder: Path) -> Config:
    rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in pairs(80)]
    data = write_rows(folder / "rows.jsonl", rows)
    return make_run(folder / "unused", save_tiny_model(folder / "model"), data, "sft").config


FRAMEWORKS: Mapping[str, Callable[[Path], Config]] = {
    "hf": of_hf,
    "litgpt": pretraining,
    "trl": of_trl,
}


def weights_of(run: TinyRun) -> Mapping[str, torch.Tensor]:
    final = run.folder / "final"
    if (final / "lit_model.pth").exists():
        loaded: dict[str, torch.Tensor] = torch.load(final / "lit_model.pth", weights_only=True)
        return loaded
    return read_tensors(final / "model.safetensors")


@pytest.mark.parametrize("name", ["muon", "lion", "schedule_free", "adamw8bit"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_training_continues_bit_for_bit(
    framework: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = changed(FRAMEWORKS[framework](tmp_path), CHANGES)
    config = changed(config, {"optimizer": optimizers.section(name)})
    straight, killed = (TinyRun(tmp_path / of, config) for of in ("straight", "killed"))
    code, _, errors = straight.train()
    assert code == 0, errors
    assert killed.end_at(KILLED_AT, signal.SIGKILL) == -signal.SIGKILL
    assert not (killed.folder / "final").exists()
    code, _, errors = killed.train()
    assert code == 0, errors

    resumed = [event for event in killed.events() if event["kind"] == "started"][-1]
    assert 0 < resumed["resumed_from"] <= KILLED_AT
    keys = ("loss", "grad_norm", "lr", "val_loss")
    assert killed.values_by_step(*keys) == straight.values_by_step(*keys)
    expected, weights = weights_of(straight), weights_of(killed)
    assert weights.keys() == expected.keys()
    assert all(weights[tensor].equal(expected[tensor]) for tensor in expected)
