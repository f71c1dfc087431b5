"""The ladder for memory goes rung by rung, and only where the configuration has the field."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_runtime.core.diagnosis.remedies import LADDER, REMEDIES, RUNGS, advice, patches
from trainer_runtime.core.policy.patch import apply_sets

_FULL: dict[str, Any] = {
    "framework": "hf",
    "data": {"seq_len": 2048},
    "batch": {"tokens": 16384, "micro_batch": 4, "accumulation": 2},
    "compute": {"strategy": "ddp", "activation_checkpointing": False},
    "adapter": None,
}
_LORA = {**_FULL, "framework": "trl", "adapter": {"kind": "lora", "r": 16, "quantize": None}}


def climbed(config: dict[str, Any]) -> list[dict[str, Any]]:
    """What each first rung changes, until none is left."""
    steps = []
    while found := patches("cuda_oom", config):
        steps.append(dict(found[0].set))
        config = apply_sets(config, found[0].set)
    return steps


def test_memory_is_won_by_smaller_pieces_then_recomputing_then_parting_over_ranks() -> None:
    assert climbed(_FULL) == [
        {"batch.micro_batch": 2, "batch.accumulation": 4},
        {"batch.micro_batch": 1, "batch.accumulation": 8},
        {"compute.activation_checkpointing": True},
        {"compute.strategy": "zero2"},
        {"compute.strategy": "zero3"},
        {"compute.strategy": "zero3_offload"},
    ]


@pytest.mark.parametrize(
    ("framework", "strategy", "following"),
    [
        ("litgpt", "ddp", ["fsdp"]),
        ("litgpt", "single", []),
        ("trl", "fsdp", ["zero3_offload"]),
        ("hf", "single", ["zero3_offload"]),
        ("nanogpt", "single", []),
    ],
)
def test_each_framework_climbs_the_strategies_that_it_has(
    framework: str, strategy: str, following: list[str]
) -> None:
    compute = {"device": "cuda", "strategy": strategy, "activation_checkpointing": True}
    config = {"framework": framework, "compute": compute}
    assert [step["compute.strategy"] for step in climbed(config)] == following


def test_the_hosts_memory_is_won_by_smaller_pieces_only_where_the_processor_trains() -> None:
    batch = {"batch": {"micro_batch": 4, "accumulation": 2}}
    on_cpu = {"framework": "nanogpt", "compute": {"device": "cpu"}, **batch}
    (patch,) = patches("host_oom", on_cpu)
    assert patch.set == {"batch.micro_batch": 2, "batch.accumulation": 4}
    assert patches("host_oom", {**on_cpu, "compute": {"device": "cuda"}}) == ()
    assert patches("host_oom", _FULL) == ()


def test_an_adapter_has_a_ladder_of_its_own() -> None:
    assert climbed(_LORA)[2:] == [
        {"compute.activation_checkpointing": True},
        {"adapter.quantize": "nf4"},
    ]


def test_kto_keeps_two_rows_to_compare_and_parted_weights_are_not_quantized() -> None:
    kto = {**_LORA, "method": "kto", "compute": {**_LORA["compute"], "strategy": "zero3"}}
    assert climbed(kto) == [
        {"batch.micro_batch": 2, "batch.accumulation": 4},
        {"compute.activation_checkpointing": True},
    ]


def test_rungs_whose_fields_are_missing_are_left_out() -> None:
    config = {"framework": "nanogpt", "batch": _FULL["batch"], "compute": {"compile": True}}
    assert [patch.id for patch in patches("cuda_oom", config)] == ["halve_micro_batch"]
    assert patches("cuda_oom", {**config, "framework": "attached"}) == ()
    assert patches("cuda_oom", None) == ()


def test_other_users_of_the_memory_are_checked_first() -> None:
    assert advice("cuda_oom")[0].startswith("Check which processes use the GPU's memory")


@pytest.mark.parametrize("code", ["package_missing", "package_mismatch"])
def test_the_advice_for_a_program_names_how_an_environment_is_built(code: str) -> None:
    words = " ".join(advice(code))
    assert "`--set environment.requirements=FILE`" in words
    assert "or set `environment: auto`" not in words


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.id)
def test_no_rung_takes_tokens_from_a_step_or_shortens_a_sequence(rung: Any) -> None:
    on_cpu = {**_FULL, "compute": {"device": "cpu"}}
    fp16 = {**_FULL, "precision": "fp16", "optimizer": {"lr": 0.1}}
    for config in (_FULL, _LORA, fp16, on_cpu):
        changed = apply_sets(config, rung.changes(config))
        batch = changed["batch"]
        assert batch["micro_batch"] * batch["accumulation"] == 8
        assert changed["data"] == config["data"]


def test_what_findings_of_series_propose_is_in_the_table() -> None:
    assert {remedy.rung for remedy in REMEDIES.values() if remedy.rung} <= RUNGS.keys()
    assert len(RUNGS) == len(LADDER)
