"""Every rung of the ladder is one that planning takes for the framework it is for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trainer_runtime.core.diagnosis.remedies import LADDER, Rung
from trainer_runtime.core.policy.patch import BOX_FIELDS, apply_sets
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, TorchFacts, plan
from trainmaster.plan.spec import TrainingSpec, changes_of

SpecMaker = Callable[..., TrainingSpec]
RESOLVED_ONLY = {"batch.accumulation", "checkpoint.every_is_auto"}
STARTS: dict[str, tuple[str, ...]] = {
    "nanogpt": (),
    "hf": ("framework=hf",),
    "litgpt": ("framework=litgpt",),
    "lora": (
        "framework=trl",
        "data.sources.main.format=jsonl",
        "model={path: /weights}",
        "adapter={r: 8}",
        "compute.gpus=2",
    ),
    "dpo": (
        "framework=trl",
        "method=dpo",
        "method_args.beta=0.1",
        "data.sources.main.format=jsonl",
    ),
}
ROOMY = (
    *("batch.micro_batch=4", "batch.tokens=4096", "optimizer.lr=0.001", "optimizer.grad_clip=2.0"),
    *("compute.compile=true", "checkpoint.every=10", "checkpoint.keep_every_steps=5"),
    "precision=fp16",
)


@pytest.fixture
def gpu_host(cpu_host: HostFacts) -> HostFacts:
    """Two GPUs and a PyTorch for them."""
    gpus = tuple(
        GpuFacts(index=i, name="NVIDIA L4", memory_gib=22.5, memory_free_gib=22.0, driver="580.1")
        for i in range(2)
    )
    torch = TorchFacts(version="2.13.0", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return cpu_host.model_copy(update={"gpus": gpus, "torch": torch, "disk_free_gib": 100.0})


def climb(rung: Rung, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the rung changes, as often as it helps, at most four times."""
    for _ in range(4):
        changes = rung.changes(config)
        if not changes:
            return
        yield changes
        config = apply_sets(config, changes)


@pytest.mark.parametrize("start", STARTS)
def test_what_a_rung_changes_is_a_setting_of_its_framework(
    start: str, make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    several = (
        () if start == "nanogpt" else ("compute.gpus=2", "compute.activation_checkpointing=false")
    )
    given = (*STARTS[start], *ROOMY, *several)
    config = plan(make_spec(*given), gpu_host, text_corpus).config
    climbed = []
    for rung in LADDER:
        for changes in climb(rung, config):
            climbed.append(rung.id)
            sets = [
                f"{path}={json.dumps(value)}"
                for path, value in changes.items()
                if path not in RESOLVED_ONLY
            ]
            assert all(changes_of(one.partition("=")[0]) in ("resume", "box") for one in sets)
            changed = plan(make_spec(*given, *sets), gpu_host, text_corpus).config
            assert {path: _at(changed, path) for path in changes if path not in RESOLVED_ONLY} == {
                path: value for path, value in changes.items() if path not in RESOLVED_ONLY
            }, rung.id
    always = {"halve_micro_batch", "halve_lr", "tighter_clip", "keep_fewer_checkpoints", "bf16"}
    assert always <= set(climbed)
    assert ("activation_checkpointing" in climbed) is (start != "nanogpt")
    assert ("next_zero_stage" in climbed) is (start in ("hf", "dpo"))
    assert ("part_over_ranks" in climbed) is (start == "litgpt")
    assert ("raise_beta" in climbed) is (start == "dpo")
    assert ("quantize_base" in climbed) is (start == "lora")


def test_a_rate_far_above_the_plans_is_replaced_by_the_plans(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    (halve,) = [rung for rung in LADDER if rung.id == "halve_lr"]
    usual = plan(make_spec(), gpu_host, text_corpus).config["optimizer"]["lr"]
    config = plan(make_spec("optimizer.lr=14"), gpu_host, text_corpus).config
    assert halve.changes(config) == {"optimizer.lr": usual}
    assert halve.changes(apply_sets(config, halve.changes(config))) == {"optimizer.lr": usual / 2}


def test_what_the_box_may_change_by_itself_is_annotated_so() -> None:
    for path in BOX_FIELDS - RESOLVED_ONLY:
        assert changes_of(path) == "box"
    assert changes_of("method_args.beta") == "resume"


def test_a_strategy_that_needs_more_packages_brings_them_with_it(
    make_spec: SpecMaker, gpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    def packages(*sets: str) -> list[str]:
        spec = make_spec("framework=hf", "compute.gpus=2", *sets)
        found: list[str] = plan(spec, gpu_host, text_corpus).config["environment"]["packages"]
        return found

    assert not any(line.startswith("deepspeed") for line in packages())
    assert packages("compute.strategy=zero2")[-1] == "deepspeed==0.19.8"
    nanogpt = plan(make_spec(), gpu_host, text_corpus).config["environment"]
    assert "packages" not in nanogpt


def _at(config: dict[str, Any], path: str) -> Any:
    node: Any = config
    for part in path.split("."):
        node = node[part]
    return node
