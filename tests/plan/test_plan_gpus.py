"""Plans for GPUs: precision, speed, which one, and what can't be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import (
    CorpusFacts,
    GpuFacts,
    HostFacts,
    TorchFacts,
    plan,
)
from trainmaster.plan.spec import TrainingSpec

SpecMaker = Callable[..., TrainingSpec]
Corpora = Callable[..., CorpusFacts]


def with_gpu(host: HostFacts, name: str = "NVIDIA H200", gib: float = 139.8) -> HostFacts:
    gpu = GpuFacts(index=0, name=name, memory_gib=gib, memory_free_gib=gib)
    torch = TorchFacts(version="2.11.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    return changed(host, gpus=(gpu,), torch=torch)


def changed(host: HostFacts, **fields: Any) -> HostFacts:
    return host.model_copy(update=fields)


def refusal(*arguments: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        plan(*arguments)
    return caught.value


def test_precision_follows_the_hardware(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    old_cpu = changed(cpu_host, bf16_cpu=False)
    hosts = {
        "bf16": (
            cpu_host,
            changed(cpu_host, torch=None),
            with_gpu(cpu_host),
            with_gpu(cpu_host, "NVIDIA L4", 22),
        ),
        "fp16": (with_gpu(cpu_host, "Tesla T4", 14.7),),
        "fp32": (old_cpu, changed(old_cpu, torch=None)),
    }
    for precision, those in hosts.items():
        for host in those:
            assert plan(make_spec(), host, text_corpus).config["precision"] == precision


def test_an_old_gpu_that_emulates_bf16_gets_fp16(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = with_gpu(cpu_host, "Tesla V100-SXM2-16GB", 15.9)
    assert plan(make_spec(), host, text_corpus).config["precision"] == "fp16"
    error = refusal(make_spec("precision=bf16"), host, text_corpus)
    assert (error.code, error.field) == ("INVALID_VALUE", "precision")


def test_a_gpu_plan_estimates_speed_hours_and_end(
    make_spec: SpecMaker, cpu_host: HostFacts, one_source: Corpora
) -> None:
    spec = make_spec(
        "model={preset: gpt2-124m}",
        "data.seq_len=1024",
        "batch.tokens=524288",
        "steps=null",
        "tokens=2.5e9",
    )
    host = changed(with_gpu(cpu_host), usd_per_hour=4.0)
    corpus = one_source(size_bytes=10**9, tokens=10**9)
    planned = plan(spec, host, corpus)
    estimates = planned.estimates
    assert estimates.parameters == 124_337_664
    assert estimates.tokens_per_s is not None
    assert estimates.hours is not None
    assert estimates.usd == pytest.approx(estimates.hours * 4, rel=0.01)
    assert estimates.hours == pytest.approx(2.5e9 / estimates.tokens_per_s / 3600, rel=0.01)
    assert estimates.finish_at is not None
    assert estimates.finish_at.startswith("2023-11-1")
    low, high = estimates.ranges["tokens_per_s"]
    assert low < estimates.tokens_per_s < high
    assert planned.config["compute"]["device"] == "cuda"
    assert planned.config["compute"]["compile"] is True
    assert planned.config["derived"]["peak_flops"] == 989e12
    assert planned.config["checkpoint"]["every"] == "30m"
    assert planned.gpu.planned == "NVIDIA H200"
    assert planned.requirements == ("torch==2.11.0",)


def test_a_gpu_that_the_host_lacks_is_planned_for_but_not_launchable(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    planned = plan(make_spec("compute.gpu=h100"), cpu_host, text_corpus)
    assert planned.launchable is False
    assert planned.gpu.planned == "h100"
    assert any("h100" in warning for warning in planned.warnings)
    unknown = make_spec("compute.gpu=x1000", "compute.gpu_memory_gib=200")
    assert plan(unknown, cpu_host, text_corpus).config["compute"]["device"] == "cuda"


def test_a_named_gpu_that_the_host_has_is_the_hosts(
    make_spec: SpecMaker, cpu_host: HostFacts, one_source: Corpora
) -> None:
    planned = plan(make_spec("compute.gpu=h200"), with_gpu(cpu_host), one_source())
    assert planned.launchable is True
    assert planned.warnings == ()


def test_of_several_gpus_the_emptiest_is_taken_unless_the_user_chose(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    busy = GpuFacts(index=0, name="NVIDIA L4", memory_gib=22, memory_free_gib=1)
    free = GpuFacts(index=1, name="NVIDIA L4", memory_gib=22, memory_free_gib=21)
    host = changed(with_gpu(cpu_host), gpus=(busy, free))
    planned = plan(make_spec(), host, text_corpus)
    assert planned.config["env"] == {"CUDA_VISIBLE_DEVICES": "1"}
    chosen = plan(make_spec("env.CUDA_VISIBLE_DEVICES=0"), host, text_corpus)
    assert chosen.config["env"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert chosen.estimates.memory_gib <= 1


def test_a_gpu_that_pytorch_cannot_use_is_left_alone_with_a_warning(
    make_spec: SpecMaker, cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    host = changed(with_gpu(cpu_host), torch=TorchFacts(version="2.13.0+cpu"))
    as_it_is = "environment=existing"
    planned = plan(make_spec(as_it_is), host, text_corpus)
    assert planned.config["compute"]["device"] == "cpu"
    assert any("can't use it" in warning for warning in planned.warnings)
    with_a_gpu = make_spec(as_it_is, "compute.gpus=1")
    assert refusal(with_a_gpu, host, text_corpus).code == "GPU_NOT_FOUND"


@pytest.mark.parametrize(
    ("preset", "parameters"), [("gpt2-medium", 354_000_000), ("gpt2-xl", 1_556_000_000)]
)
def test_presets_fill_in_the_sizes(
    make_spec: SpecMaker, cpu_host: HostFacts, preset: str, parameters: int, one_source: Corpora
) -> None:
    spec = make_spec(f"model={{preset: {preset}}}", "data.seq_len=1024")
    planned = plan(spec, changed(with_gpu(cpu_host), disk_free_gib=500.0), one_source())
    assert planned.estimates.parameters == pytest.approx(parameters, rel=0.002)
    assert planned.config["model"]["vocab_size"] == 50257
    assert "preset" not in planned.config["model"]
