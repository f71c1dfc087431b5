from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.plan import (
    Calibration,
    CorpusFacts,
    HostFacts,
    Plan,
    Throughput,
    plan,
)
from trainmaster.plan.spec import TrainingSpec

SpecMaker = Callable[..., TrainingSpec]
Corpora = Callable[..., CorpusFacts]

TINY_CONFIG: dict[str, Any] = {
    "config_version": 1,
    "name": "small",
    "framework": "nanogpt",
    "method": "pretrain",
    "model": {
        "n_layer": 4,
        "n_head": 4,
        "n_kv_head": 4,
        "d_model": 128,
        "d_ff": 512,
        "vocab_size": 320,
        "style": "gpt2",
        "norm": "layernorm",
        "activation": "gelu",
        "rope_base": 10_000.0,
        "window": None,
        "value_embeddings": False,
        "ngram_embeddings": 0,
        "dropout": 0.0,
    },
    "data": {
        "sources": [{"name": "main", "path": "/corpus", "format": "text", "weight": 1.0}],
        "validation": [],
        "tokenizer": "byte",
        "seq_len": 128,
        "document_masks": False,
        "workers": 0,
        "bad_rows": 0.001,
        "prepare": "box",
        "fingerprint": "0123456789abcdef",
        "cache_dir": "/srv/trainmaster/cache",
        "skip": [],
    },
    "batch": {"tokens": 8192, "micro_batch": 64, "accumulation": 1, "ramp": None},
    "optimizer": {
        "name": "adamw",
        "lr": 0.0013,
        "weight_decay": 0.1,
        "decay": "decoupled",
        "grad_clip": 1.0,
        "clip": "norm",
        "betas": [0.9, 0.95],
        "momentum": None,
        "eps": 1e-8,
        "groups": [],
        "z_loss": 0.0,
        "label_smoothing": 0.0,
        "focal_gamma": 0.0,
    },
    "schedule": {
        "kind": "cosine",
        "power": 1.0,
        "cycles": 1,
        "warmup": "linear",
        "warmup_steps": 20,
        "min_lr_ratio": 0.1,
        "steps": None,
    },
    "steps": 200,
    "precision": "bf16",
    "seed": 1337,
    "eval": {"every_steps": 50, "batches": 8, "batch_size": 64},
    "checkpoint": {
        "every": "10m",
        "every_is_auto": True,
        "keep_latest": 3,
        "keep_best": 1,
        "keep_every_steps": None,
        "metric": "val_loss",
        "mirror": None,
        "ema": None,
    },
    "recovery": {
        "max_restarts": 3,
        "on_crash": "resume",
        "on_nan": "rewind_skip_data",
        "on_spike": "warn",
        "on_oom": "patch",
        "on_stall": "stacks_restart",
        "await_nodes": "15m",
        "decide_within": None,
    },
    "compute": {
        "device": "cpu",
        "gpus": 0,
        "gpu": None,
        "gpu_memory_gib": None,
        "nodes": 1,
        "min_nodes": None,
        "strategy": "single",
        "launcher": "process",
        "image": None,
        "shm_size": "16g",
        "preemptible": False,
        "threads": 2,
        "compile": False,
        "deterministic": False,
        "fp8_lm_head": False,
        "loss": "whole",
    },
    "environment": {
        "mode": "auto",
        "python": None,
        "requirements": False,
        "setup": False,
        "modules": [],
        "wheels": None,
        "wheels_from": None,
        "bound": {},
    },
    "env": {},
    "secrets": [],
    "labels": {},
    "alerts": [],
    "limits": {"max_runtime_s": 86400.0, "budget_usd": None},
    "pty": False,
    "derived": {
        "parameters": 844928,
        "flops_per_token": 5757696,
        "sequences_per_step": 64,
        "peak_flops": None,
    },
}


def reasons(planned: Plan) -> dict[str, Any]:
    return {decision.field: decision.value for decision in planned.decisions}


def test_the_config_of_a_tiny_spec_has_exactly_the_agreed_shape(
    make_spec: SpecMaker, cpu_host: HostFacts, one_source: Corpora
) -> None:
    spec = make_spec("data.sources.main.path=/corpus")
    assert plan(spec, cpu_host, one_source()).config == TINY_CONFIG


def test_nothing_is_left_auto_but_what_the_box_decides(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    def autos(value: Any, path: str) -> list[str]:
        if isinstance(value, dict):
            return [found for key in value for found in autos(value[key], f"{path}.{key}")]
        return [path] if value == "auto" else []

    found = autos(plan(make_spec(), cpu_host, text_corpus).config, "")
    assert found == [".environment.mode"]  # the host chooses the interpreter


def test_every_decision_has_a_reason(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec(), cpu_host, text_corpus)
    assert all(decision.reason.endswith(".") for decision in planned.decisions)
    assert set(reasons(planned)) >= {
        "method",
        "model.d_ff",
        "model.vocab_size",
        "precision",
        "batch.micro_batch",
        "batch.accumulation",
        "optimizer.lr",
        "schedule.warmup_steps",
        "checkpoint.every",
        "limits.max_runtime",
        "compute.gpus",
        "compute.threads",
        "compute.compile",
    }


@pytest.mark.parametrize(("steps", "warmup"), [(200, 20), (10_000, 200)])
def test_the_reason_of_a_warmup_has_the_whole_rule(
    make_spec: SpecMaker, cpu_host: HostFacts, one_source: Corpora, steps: int, warmup: int
) -> None:
    planned = plan(make_spec(f"steps={steps}"), cpu_host, one_source())
    decision = next(one for one in planned.decisions if one.field == "schedule.warmup_steps")
    assert decision.value == warmup
    assert decision.reason == f"2 % of {steps:,} steps, or a tenth up to 100; at most 2000."


def test_the_same_input_gives_the_same_plan(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    assert plan(make_spec(), cpu_host, text_corpus) == plan(make_spec(), cpu_host, text_corpus)


def test_a_batch_that_does_not_divide_is_rounded_down_and_shown(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("batch.micro_batch=7"), cpu_host, text_corpus)
    assert planned.config["batch"]["tokens"] == 7 * 128 * 9
    assert reasons(planned)["batch.tokens"] == 8064


def test_a_length_in_tokens_becomes_steps(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("steps=null", "tokens=1e6"), cpu_host, text_corpus)
    assert planned.config["steps"] == 10**6 // 8192
    assert reasons(planned)["steps"] == 122


@pytest.mark.parametrize(
    ("asked", "kept"), [("50", 50), ("90s", "90s"), ("1h30m", "90m"), ("1.5h", "90m")]
)
def test_a_given_checkpoint_interval_is_kept(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts, asked: str, kept: Any
) -> None:
    planned = plan(make_spec(f"checkpoint.every={asked}"), cpu_host, text_corpus)
    assert planned.config["checkpoint"]["every"] == kept
    assert planned.config["checkpoint"]["every_is_auto"] is False


def test_on_a_cpu_nothing_is_estimated_that_was_not_measured(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    unmeasured = plan(make_spec(), cpu_host, text_corpus).estimates
    assert unmeasured.model_dump(exclude_none=True, exclude={"ranges"}).keys() == {
        "parameters",
        "memory_gib",
        "disk_gib",
    }
    speed = Throughput(device="cpu", precision="bf16", flops_per_s=5757696 * 1000.0)
    calibrated = plan(make_spec(), cpu_host, text_corpus, Calibration(measured=(speed,)))
    assert calibrated.estimates.tokens_per_s == 1000
    assert calibrated.estimates.hours == pytest.approx(200 * 8192 / 1000 / 3600, rel=0.01)
    assert calibrated.estimates.mfu is None


def test_a_long_run_may_take_longer_than_a_day(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    speed = Throughput(device="cpu", precision="bf16", flops_per_s=5757696 * 10.0)
    planned = plan(make_spec(), cpu_host, text_corpus, Calibration(measured=(speed,)))
    assert planned.config["limits"]["max_runtime_s"] == 69 * 3600  # 1.5 * 200 * 8192 / 10, up
    assert planned.config["checkpoint"]["every"] == "2h"
    short = plan(
        make_spec("limits.max_runtime=1h"), cpu_host, text_corpus, Calibration(measured=(speed,))
    )
    assert short.config["limits"]["max_runtime_s"] == 3600
    assert any("max_runtime" in warning for warning in short.warnings)


def test_a_learning_rate_far_above_what_auto_takes_is_warned_of(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    for rate, warned in ((0.01, False), (1.0, True), (1e9, True)):
        planned = plan(make_spec(f"optimizer.lr={rate}"), cpu_host, text_corpus)
        assert any("optimizer.lr" in warning for warning in planned.warnings) is warned, rate


def test_reading_the_corpus_too_often_is_warned_of(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("steps=1000"), cpu_host, text_corpus)
    assert any("overfits" in warning for warning in planned.warnings)


def test_a_llama_gets_a_feed_forward_of_eight_thirds(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("model.style=llama", "model.n_kv_head=2"), cpu_host, text_corpus)
    assert planned.config["model"]["d_ff"] == 384
    assert planned.config["model"]["n_kv_head"] == 2


def test_a_modern_model_is_planned_by_its_own_sizes_and_says_what_its_final_folder_is(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    usual = plan(make_spec("model.style=modern"), cpu_host, text_corpus)
    # Embedding and output; per block four square matrices and two of four times the width.
    assert usual.estimates.parameters == 2 * 320 * 128 + 4 * (4 + 8) * 128**2
    model = usual.config["model"]
    assert (model["norm"], model["activation"]) == ("rmsnorm_no_gain", "relu2")
    assert not [text for text in usual.warnings if "transformers" in text]
    windowed = plan(make_spec("model.style=modern", "model.window=16"), cpu_host, text_corpus)
    assert [text for text in windowed.warnings if text.startswith("transformers has no model")]
    attention = 4 * 12 * 128
    flops = [made.config["derived"]["flops_per_token"] for made in (usual, windowed)]
    assert flops[0] - flops[1] == attention * (128 - 16)
