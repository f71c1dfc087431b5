"""Estimates beside published trainings: the rows of `published/`, each with its source.

docs/design/planning.md has the errors by family, `python -m support.plan.published` prints them.
"""

from __future__ import annotations

import pytest
from support.plan.published import (
    Row,
    architecture,
    by_family,
    estimated_memory,
    memory_error,
    published_gib,
    rows,
    shape,
    summary,
    throughput_error,
)

from trainer_runtime.core.environment.gpus import find_gpu
from trainmaster.errors.errors import PlanError
from trainmaster.plan import (
    CorpusFacts,
    HostFacts,
    ModelFacts,
    Plan,
    SourceFacts,
    TorchFacts,
    plan,
)
from trainmaster.plan.decisions.throughput import SPREAD_MODELLED, Step, modelled_mfu
from trainmaster.plan.spec import load_spec

# Few rows each: they bear little on the constants, and the left-out errors of
# docs/design/planning.md alone are out of sample.
_SMALL_FAMILIES = ("megatron", "fms-fsdp", "nemo", "torchtune")


def _all(families: dict[str, list[float]]) -> list[float]:
    return [error for errors in families.values() for error in errors]


def test_memory_is_within_a_few_percent_of_published_peaks() -> None:
    families = by_family("memory", memory_error)
    errors = _all(families)
    median, most = summary(errors)
    assert len(errors) >= 60
    assert (median < 0.06, most < 0.19) == (True, True), (median, most)
    for family, limit in (("torchtitan", 0.08), ("litgpt", 0.08), ("qwen", 0.06)):
        assert summary(families[family])[0] < limit, family


def test_the_range_of_memory_holds_nine_in_ten_published_peaks() -> None:
    held = [
        low <= published_gib(row) <= high
        for row in rows("memory")
        for low, high in (estimated_memory(row).range_gib,)
    ]
    assert sum(held) / len(held) > 0.87


def test_throughput_is_within_a_few_percent_of_published_runs() -> None:
    families = by_family("throughput", throughput_error)
    errors = _all(families)
    median, most = summary(errors)
    assert len(errors) >= 90
    assert (median < 0.06, most < 0.2) == (True, True), (median, most)
    assert summary(families["llm-foundry"]) < (0.05, 0.09)
    of_small = [error for family in _SMALL_FAMILIES for error in families[family]]
    assert summary(of_small)[0] < 0.11
    assert sum(abs(error) <= SPREAD_MODELLED for error in errors) / len(errors) > 0.88


@pytest.mark.parametrize(
    ("name", "sustained"),
    [
        ("t4", 24e12),  # https://forums.developer.nvidia.com/t/about-gpu-peak-performance/264462
        ("v100", 83e12),  # Markidis et al. 2018 (arXiv 1803.04014)
        ("v100-16", 83e12),
        ("p100", 9.35e12),  # its data sheet, for fp32
    ],
)
def test_an_older_gpu_is_planned_at_no_more_than_its_matrix_products_sustain(
    name: str, sustained: float
) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    for row in rows("throughput"):
        mfu = modelled_mfu(architecture(row), gpu, Step(compiled=True))
        assert 0.3 * sustained < mfu * gpu.peak_flops < sustained, row["model"]


def _planned(text: str, model: ModelFacts | None = None) -> Plan:
    torch = TorchFacts(version="2.13.0+cu130", cuda="13.0", cuda_available=True, bf16_gpu=True)
    host = HostFacts(
        hostname="box",
        root="/srv",
        cores=64.0,
        memory_total_gib=2000.0,
        memory_available_gib=1900.0,
        disk_free_gib=1e6,
        torch=torch,
    )
    source = SourceFacts(
        name="main", path="/corpus", files=1, size_bytes=10**13, tokens=10**13, examples=10**9
    )
    corpus = CorpusFacts(sources=(source,), fingerprint="0")
    return plan(load_spec(text, ()), host, corpus, None, model)


def _planned_row(row: Row) -> Plan:
    tokens = int(row["micro_batch"]) * int(row["gpus"]) * int(row["seq_len"])
    sizes = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "vocab_size", "style")
    model = ", ".join(f"{name}: {row[name]}" for name in sizes)
    return _planned(
        f"name: published\nframework: hf\nsteps: 100\nmodel: {{{model}}}\n"
        f"data: {{sources: [{{name: main, path: /corpus}}], seq_len: {row['seq_len']}}}\n"
        f"batch: {{tokens: {tokens}, micro_batch: {row['micro_batch']}}}\nprecision: bf16\n"
        f"compute: {{gpu: {row['gpu']}, gpus: {row['gpus']}, strategy: {row['strategy']}, "
        f"activation_checkpointing: {str(row['recompute'] == 'full').lower()}}}\n"
    )


_MPT = [row for row in rows("throughput") if row["family"] == "llm-foundry"]


@pytest.mark.parametrize("model", sorted({row["model"] for row in _MPT}))
def test_what_was_published_as_run_is_planned_at_about_its_speed(model: str) -> None:
    for row in [row for row in _MPT if row["model"] == model]:
        made = _planned_row(row)
        gpu = find_gpu(row["gpu"])
        assert gpu is not None and made.estimates.memory_gib is not None
        assert made.estimates.tokens_per_s is not None
        reached = made.estimates.tokens_per_s / int(row["gpus"])
        # Two rows of the table are a fifth slower than their neighbours.
        assert reached == pytest.approx(float(row["tokens_per_s"]), rel=0.3), row
        # Where the estimate exceeds what the GPU has, the plan says that room is short.
        says_so = any("Memory is short" in warning for warning in made.warnings)
        assert says_so == (made.estimates.memory_gib > gpu.memory_gib * 0.95 * 0.9), row


@pytest.mark.parametrize("framework", ["hf", "litgpt"])
@pytest.mark.parametrize("gpu", ["a100", "h100"])
@pytest.mark.parametrize(("model", "gpus"), [("llama-2-7b", 8), ("llama-2-13b", 32)])
def test_pretraining_reaches_what_published_trainings_of_its_size_reach(
    framework: str, gpu: str, model: str, gpus: int
) -> None:
    row = shape(model)
    sizes = ("n_layer", "n_head", "d_model", "d_ff", "vocab_size", "style")
    named = ", ".join(f"{name}: {row[name]}" for name in sizes)
    made = _planned(
        f"name: large\nframework: {framework}\nsteps: 1000\nmodel: {{{named}}}\n"
        "data: {sources: [{name: main, path: /corpus}], seq_len: 4096}\n"
        f"batch: {{tokens: 2097152}}\ncompute: {{gpu: {gpu}, gpus: {gpus}}}\n"
    )
    assert made.estimates.mfu is not None
    assert 0.36 <= made.estimates.mfu <= 0.60


def _tuned(model: str, gpu: str, gpus: int = 1, seq_len: int = 1024, more: str = "") -> Plan:
    row = shape(model)
    sizes = {name: int(row[name]) for name in row if name not in ("model", "style", "tied")}
    facts = ModelFacts(
        path="/weights",
        model_type="llama",
        is_decoder=True,
        tied=False,
        has_tokenizer=True,
        chat_template=True,
        **sizes,
    )
    return _planned(
        "name: tuned\nframework: trl\nmethod: sft\nsteps: 100\nmodel: {path: /weights}\n"
        f"data: {{sources: [{{name: main, path: /corpus, format: jsonl}}], seq_len: {seq_len}}}\n"
        f"batch: {{tokens: {16 * gpus * seq_len}}}\n"
        f"compute: {{gpu: {gpu}, gpus: {gpus}}}\n{more}",
        facts,
    )


@pytest.mark.parametrize(
    ("model", "gpu", "adapter"),
    [
        ("llama-3.1-8b", "4090", "adapter: {r: 16}\n"),
        ("llama-2-7b", "t4", "adapter: {r: 16, quantize: nf4}\n"),
        ("llama-2-70b", "a100", "adapter: {r: 16, quantize: nf4}\n"),
    ],
)
def test_what_is_usually_tuned_on_one_gpu_fits_there(model: str, gpu: str, adapter: str) -> None:
    made = _tuned(model, gpu, more=adapter)
    assert made.estimates.memory_gib is not None
    low, high = made.estimates.ranges["memory_gib"]
    assert low < made.estimates.memory_gib < high
    assert not any("Memory is short" in warning for warning in made.warnings)


def test_a_model_that_fits_by_offloading_alone_is_refused_with_that_way() -> None:
    with pytest.raises(PlanError) as caught:
        _tuned("llama-3.1-70b", "h100", 8, 2048)
    assert (caught.value.code, caught.value.field) == ("DOES_NOT_FIT", "model")
    assert "compute.strategy=zero3_offload" in caught.value.fix
