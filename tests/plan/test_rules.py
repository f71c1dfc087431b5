"""The planner's rules, each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.environment.gpus import find_gpu
from trainmaster.plan.architecture import Architecture, parameters
from trainmaster.plan.decisions.checkpoint_interval import ceiling_s, kept_checkpoints
from trainmaster.plan.decisions.fit import LONGEST_WITH_SCORES
from trainmaster.plan.decisions.hardware import recommend_gpu
from trainmaster.plan.decisions.hyperparameters import (
    choose_micro_batch,
    learning_rate,
    warmup_steps,
    whole_batch,
)
from trainmaster.plan.decisions.memory import WEIGHT_SCORES, Load, memory
from trainmaster.plan.decisions.throughput import modelled_mfu


@pytest.mark.parametrize(
    ("size", "rate"),
    [(125e6, 6e-4), (350e6, 3e-4), (760e6, 2.5e-4), (1.3e9, 2e-4), (6.7e9, 1.2e-4), (13e9, 1e-4)],
)
def test_learning_rates_are_gpt3s_at_its_sizes(size: float, rate: float) -> None:
    assert learning_rate(int(size))[0] == pytest.approx(rate, rel=0.07)


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_a_larger_model_never_gets_a_higher_rate(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert learning_rate(large)[0] <= learning_rate(small)[0] <= 2e-3


@pytest.mark.parametrize(
    ("steps", "warmup"),
    [(1, 0), (10, 1), (200, 20), (1000, 100), (5000, 100), (20_000, 400), (10**6, 2000)],
)
def test_warmup_is_two_percent_with_a_minimum_for_short_runs(steps: int, warmup: int) -> None:
    assert warmup_steps(steps) == warmup


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_a_micro_batch_fits_and_wastes_little_of_the_step(sequences: int, most: int) -> None:
    micro_batch = choose_micro_batch(sequences, most)
    assert 1 <= micro_batch <= min(sequences, most)
    assert micro_batch * 4 >= min(sequences, most)
    assert sequences - whole_batch(sequences, 1, micro_batch).tokens < micro_batch


def test_a_micro_batch_divides_the_step_where_it_can() -> None:
    assert choose_micro_batch(sequences=64, most=48) == 32
    assert choose_micro_batch(sequences=78, most=64) == 39
    assert choose_micro_batch(sequences=61, most=60) == 32


@pytest.mark.parametrize(
    ("hours", "minutes"),
    [(None, 10), (0.5, 10), (1.0, 30), (3.9, 30), (4.0, 60), (23.9, 60), (24.0, 120), (900.0, 120)],
)
def test_checkpoints_are_rarer_the_longer_the_job(hours: float | None, minutes: int) -> None:
    assert ceiling_s(hours) == minutes * 60


def test_retention_counts_the_checkpoints_in_flight() -> None:
    assert kept_checkpoints(steps=1000, keep_latest=3, keep_best=1, keep_every=None) == 6
    assert kept_checkpoints(steps=1000, keep_latest=3, keep_best=1, keep_every=100) == 16
    assert kept_checkpoints(steps=1000, keep_latest=1, keep_best=1, keep_every=None) == 6
    assert kept_checkpoints(steps=4, keep_latest=100, keep_best=1, keep_every=1) == 5


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("h100", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-PCIE-40GB", "a100-40"),
        ("a100-40", "a100-40"),
        ("a100_80gb", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("rtx4090", "4090"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-16GB", "v100-16"),
        ("NVIDIA Something 5000", None),
    ],
)
def test_gpus_are_found_by_the_names_that_tools_print(name: str, found: str | None) -> None:
    gpu = find_gpu(name)
    assert (gpu.name if gpu is not None else None) == found


def test_the_two_sizes_of_a100_are_distinguished_by_memory() -> None:
    assert find_gpu("NVIDIA A100", memory_gib=39.4) == find_gpu("a100-40")
    assert find_gpu("NVIDIA A100", memory_gib=79.2) == find_gpu("a100")


@pytest.mark.parametrize(
    ("size", "flops", "gpus"),
    [
        (8e5, 1e13, "none"),
        (1.2e8, 1e18, "1x a100-40"),
        (3e9, 1e21, "1-4x a100"),
        (8e9, 1e21, "4-8x a100"),
        (3e10, 1e22, "8x h100"),
        (1e11, 1e23, "16x h100"),
    ],
)
def test_gpus_are_recommended_by_size(size: float, flops: float, gpus: str) -> None:
    assert recommend_gpu(int(size), flops)[0] == gpus


# llm-foundry at 8c8dd48, scripts/train/benchmarking/README.md, rows of eight GPUs without
# recomputation: width, layers, sequence length, GPU, MFU in percent.
_PUBLISHED_MFU = [
    (768, 12, 1024, "a100", 43.15),
    (768, 12, 2048, "a100", 44.45),
    (1024, 24, 1024, "a100", 50.51),
    (2048, 24, 2048, "a100", 59.86),
    (2048, 24, 8192, "a100", 56.69),
    (2048, 24, 1024, "h100", 41.95),
    (2560, 32, 512, "h100", 46.32),
    (2560, 32, 4096, "h100", 42.31),
]


@pytest.mark.parametrize(("width", "layers", "seq_len", "gpu", "percent"), _PUBLISHED_MFU)
def test_modelled_mfu_is_within_13_percent_of_published_runs(
    width: int, layers: int, seq_len: int, gpu: str, percent: float
) -> None:
    heads = width // 64
    model = Architecture("gpt2", layers, heads, heads, width, 4 * width, 50368, seq_len)
    entry = find_gpu(gpu)
    assert entry is not None
    assert modelled_mfu(model, entry) * 100 == pytest.approx(percent, rel=0.13)


def test_memory_grows_with_the_micro_batch_and_doubles_its_activations_in_fp32() -> None:
    model = Architecture("gpt2", 12, 12, 12, 768, 3072, 50304, 1024)
    load = Load(model, parameters(model))
    half = memory(load, 8, "bf16", "cuda")
    full = memory(load, 8, "fp32", "cuda")
    twice = memory(load, 16, "bf16", "cuda")
    assert full.activations_gib == pytest.approx(2 * half.activations_gib)
    assert twice.activations_gib == pytest.approx(2 * half.activations_gib)
    assert half.state_gib == full.state_gib == pytest.approx(124_373_760 * 16 / 2**30)


def test_attention_that_keeps_its_weights_takes_two_bytes_for_each_of_them() -> None:
    model = Architecture("gpt2", 12, 12, 12, 768, 3072, 50304, 1024)
    fused, kept = (
        memory(Load(model, parameters(model), score_bytes=scores), 8, "bf16", "cpu").activations_gib
        for scores in (0, WEIGHT_SCORES)
    )
    weights = 8 * 12 * 12 * 1024 * 1024  # batch, layers, heads, a square of positions
    assert kept - fused == pytest.approx(2 * weights / 2**30)
    script = (Path(__file__).parents[1] / "golden/scripts/nanogpt_gpt2.py").read_text()
    bf16, fp32 = LONGEST_WITH_SCORES["bf16"], LONGEST_WITH_SCORES["fp32"]
    assert f"{{torch.bfloat16: {bf16}, torch.float32: {fp32}}}" in script
