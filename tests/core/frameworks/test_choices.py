"""The choices of a script against those of a config, as a trainer compares them when it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import choices_of
from trainer_runtime.train.attempt.config import ConfigError, read_run_config, refuse_another_script

LORA = {"kind": "lora", "r": 4, "alpha": 8}
ALIGNED = {"framework": "trl", "method": "dpo", "adapter": LORA}
CONFIG: dict[str, Any] = {
    "config_version": 1,
    "data": {
        "sources": [],
        "tokenizer": "byte",
        "seq_len": 8,
        "fingerprint": "0",
        "cache_dir": "/cache",
    },
    "model": {},
    "batch": {"tokens": 8, "micro_batch": 1, "accumulation": 1},
    "optimizer": {"lr": 1e-3},
    "schedule": {},
    "checkpoint": {"every": 1},
    "steps": 1,
}


@pytest.mark.parametrize(
    ("config", "choices"),
    [
        ({"framework": "nanogpt", "model": {"style": "llama"}}, {"style": "llama"}),
        ({"framework": "hf", "model": {"path": None, "hub": None}}, {"weights": "new"}),
        ({"framework": "hf", "model": {"path": "/models/a"}}, {"weights": "existing"}),
        ({"framework": "hf", "model": {"path": None, "hub": "a/b"}}, {"weights": "existing"}),
        ({"framework": "litgpt", "method": "pretrain", "adapter": None}, {"command": "pretrain"}),
        ({"framework": "litgpt", "method": "sft", "adapter": None}, {"command": "finetune_full"}),
        ({"framework": "litgpt", "method": "sft", "adapter": LORA}, {"command": "finetune_lora"}),
        ({"framework": "trl", "method": "kto"}, {"method": "kto", "tuning": "full"}),
        (ALIGNED, {"method": "dpo", "tuning": "lora"}),
    ],
)
def test_a_config_decides_its_script(config: dict[str, Any], choices: dict[str, str]) -> None:
    assert choices_of(RunConfig.parse(config)) == choices


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "kto"}, "method dpo, config.json asks for kto"),
        ({"adapter": None}, "tuning lora, config.json asks for full"),
        ({"framework": "hf"}, "method dpo, config.json asks for framework hf"),
        ({"method": "ppo"}, "method 'ppo' is none of sft, dpo"),
    ],
)
def test_a_script_refuses_a_config_for_another_one(
    changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, **ALIGNED, **changed}))
    with pytest.raises(ConfigError, match=message):
        refuse_another_script(read_run_config(path), {"method": "dpo", "tuning": "lora"})


def test_a_script_takes_the_config_that_it_was_rendered_for(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, **ALIGNED}))
    refuse_another_script(read_run_config(path), choices_of(RunConfig.parse(ALIGNED)))
    refuse_another_script(read_run_config(path), {})  # a script of the user's own
