from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import litgpt
from trainmaster.settings.yaml12 import load_yaml

_GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "render"
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"
_SIZES = {
    "n_layer": 12,
    "n_head": 12,
    "n_kv_head": 4,
    "d_model": 768,
    "d_ff": 2048,
    "vocab_size": 320,
    "style": "llama",
    "dropout": 0.0,
}
_NO_ORIGIN = {"preset": None, "path": None, "hub": None, "revision": None}
PRETRAINING: dict[str, Any] = {
    "name": "small",
    "framework": "litgpt",
    "method": "pretrain",
    "method_args": {},
    "model": {**_SIZES, **_NO_ORIGIN},
    "adapter": None,
    "data": {
        "sources": [
            {"name": "web", "path": "/data/web", "format": "text", "weight": 0.7},
            {"name": "code", "path": "/data/code", "format": "text", "weight": 0.3},
        ],
        "tokenizer": "byte",
        "seq_len": 1024,
        "fingerprint": "0123456789abcdef",
        "cache_dir": "/cache",
        "form": "shards",
    },
    "batch": {"tokens": 524288, "micro_batch": 16, "accumulation": 8},
    "optimizer": {
        "name": "adamw",
        "lr": 6e-4,
        "weight_decay": 0.1,
        "grad_clip": 1.0,
        "betas": [0.9, 0.95],
    },
    "schedule": {"kind": "cosine", "warmup_steps": 100, "min_lr_ratio": 0.1},
    "steps": 5000,
    "precision": "bf16",
    "seed": 1337,
    "eval": {"every_steps": 250, "batches": 8},
    "compute": {"device": "cuda", "processes": 4, "strategy": "fsdp"},
    "tracking": {"wandb": {"project": "trials"}},
}
LORA: dict[str, Any] = {
    **PRETRAINING,
    "method": "sft",
    "method_args": {"mask_prompt": True, "prompt_style": "auto"},
    "model": {**dict.fromkeys(_SIZES), **_NO_ORIGIN, "path": "/models/pythia-160m"},
    "adapter": {"kind": "lora", "r": 16, "alpha": 32.0, "targets": "auto", "quantize": None},
    "data": {**PRETRAINING["data"], "tokenizer": "/models/pythia-160m", "form": "dataset"},
    "batch": {"tokens": 32768, "micro_batch": 4, "accumulation": 8},
    "optimizer": {**PRETRAINING["optimizer"], "lr": 2e-4},
    "steps": 300,
    "compute": {"device": "cuda", "processes": 1, "strategy": "single"},
    "tracking": {},
}


@pytest.mark.parametrize(
    ("config", "name"),
    [(PRETRAINING, "litgpt_pretrain.yaml"), (LORA, "litgpt_finetune_lora.yaml")],
)
def test_the_rendered_file_is_the_golden_one(config: dict[str, Any], name: str) -> None:
    written = litgpt.files(RunConfig.parse(config))["litgpt.yaml"]
    golden = _GOLDEN / name
    if _UPDATE:
        golden.write_text(written)
    assert written == golden.read_text()
    json.dumps(load_yaml(written))


def test_litgpt_trains_exactly_the_steps_of_the_plan() -> None:
    train = load_yaml(litgpt.files(RunConfig.parse(PRETRAINING))["litgpt.yaml"])["train"]
    # As `litgpt.pretrain.fit` counts: iterations of a rank, of which some make a step.
    iterations = train["max_tokens"] // 4 // (train["micro_batch_size"] * 1024)
    accumulation = train["global_batch_size"] // 4 // train["micro_batch_size"]
    assert (iterations, accumulation) == (5000 * 8, 8)


def test_the_byte_tokenizer_comes_beside_and_others_are_where_they_are() -> None:
    files = litgpt.files(RunConfig.parse(PRETRAINING))
    assert {"litgpt.yaml", "tokenizer/tokenizer.json"} < files.keys()
    assert load_yaml(files["litgpt.yaml"])["tokenizer_dir"] == "tokenizer"
    assert litgpt.files(RunConfig.parse(LORA)).keys() == {"litgpt.yaml"}
    elsewhere = {"data": {**PRETRAINING["data"], "tokenizer": "/tokenizers/own"}}
    written = litgpt.files(RunConfig.parse({**PRETRAINING, **elsewhere}))["litgpt.yaml"]
    assert load_yaml(written)["tokenizer_dir"] == "/tokenizers/own"


def test_a_model_of_litgpts_list_goes_by_its_name() -> None:
    model = {**dict.fromkeys(_SIZES), **_NO_ORIGIN, "preset": "pythia-160m"}
    written = load_yaml(
        litgpt.files(RunConfig.parse({**PRETRAINING, "model": model}))["litgpt.yaml"]
    )
    assert (written["model_name"], written["model_config"]) == ("pythia-160m", None)
    assert written["initial_checkpoint_dir"] is None


def test_the_folder_of_a_model_to_start_from_depends_on_what_it_is_made_of() -> None:
    folder = litgpt.start_folder(RunConfig.parse(LORA))
    assert folder is not None
    assert folder.startswith("/cache/models/litgpt/")
    other = copy.deepcopy(LORA)
    other["model"]["revision"] = "step1000"
    assert litgpt.start_folder(RunConfig.parse(other)) != folder


@pytest.mark.parametrize(
    ("targets", "parts"),
    [
        ("auto", {"query", "value"}),
        (["q_proj", "k_proj", "v_proj", "o_proj"], {"query", "key", "value", "projection"}),
        (["mlp", "lm_head"], {"mlp", "head"}),
    ],
)
def test_targets_of_adapters_are_known_by_their_usual_names(targets: Any, parts: set[str]) -> None:
    adapter = {**LORA["adapter"], "targets": targets}
    written = load_yaml(litgpt.files(RunConfig.parse({**LORA, "adapter": adapter}))["litgpt.yaml"])
    assert {part for part in litgpt.LORA_PARTS if written[f"lora_{part}"]} == parts


def test_a_quantized_base_is_computed_with_in_its_own_precision() -> None:
    adapter = {**LORA["adapter"], "quantize": "nf4"}
    written = load_yaml(litgpt.files(RunConfig.parse({**LORA, "adapter": adapter}))["litgpt.yaml"])
    assert (written["quantize"], written["precision"]) == ("bnb.nf4", "bf16-true")
