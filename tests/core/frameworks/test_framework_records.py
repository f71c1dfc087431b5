from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import hf, launching
from trainer_runtime.core.frameworks.framework import WRITING

CONFIG: dict[str, Any] = {
    "run_id": "small-abc234",
    "framework": "hf",
    "data": {"tokenizer": "byte"},
    "batch": {"tokens": 4096, "micro_batch": 4, "accumulation": 2},
    "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.1, "grad_clip": 1.0},
    "schedule": {"kind": "cosine", "warmup_steps": 5, "min_lr_ratio": 0.1},
    "steps": 100,
    "precision": "bf16",
    "seed": 7,
    "eval": {"every_steps": 10, "batches": 2},
    "compute": {"device": "cuda", "compile": True, "activation_checkpointing": True},
    "tracking": {"tensorboard": True, "wandb": {"project": "small"}, "comet": None},
}


def test_trainers_arguments_are_read_back_from_yaml_as_they_were_decided() -> None:
    files = launching.files(RunConfig.parse(CONFIG))
    arguments = yaml.safe_load(files["training_args.yaml"])
    assert arguments == hf.training_arguments(RunConfig.parse(CONFIG))
    assert arguments["output_dir"] == WRITING
    assert (arguments["learning_rate"], arguments["bf16"], arguments["fp16"]) == (1e-5, True, False)
    assert arguments["gradient_checkpointing_kwargs"] == {"use_reentrant": False}
    assert arguments["report_to"] == ["tensorboard", "wandb"]
    assert "tokenizer/tokenizer.json" in files


def test_another_tokenizer_brings_no_folder() -> None:
    files = launching.files(RunConfig.parse({**CONFIG, "data": {"tokenizer": "/box/tokenizer"}}))
    assert list(files) == ["training_args.yaml"]


def test_trackers_read_their_options_from_the_environment() -> None:
    assert hf.tracking_variables(RunConfig.parse(CONFIG)) == {
        "TENSORBOARD_LOGGING_DIR": "tensorboard",
        "WANDB_PROJECT": "small",
    }


@pytest.mark.parametrize("every_steps", [None, 0])
def test_without_an_interval_the_callback_alone_asks_for_an_evaluation(every_steps: Any) -> None:
    config = {**CONFIG, "eval": {"every_steps": every_steps, "batches": 2}}
    assert hf.training_arguments(RunConfig.parse(config))["eval_strategy"] == "no"
