"""Plans that change existing weights, choose an attention or a loss, and what is refused."""

from __future__ import annotations

import pytest
from support.plan.framework_plans import BILLION, decided, planned, refusal

from trainmaster.plan import CorpusFacts, HostFacts, ModelFacts, TokenizerFacts, plan
from trainmaster.plan.spec import load_spec

_LONG = "model.rope_scaling={factor: 2}"


def test_scaled_positions_take_longer_sequences(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    made = planned("hf", gpu_host, rows, "data.seq_len=4096", _LONG, model=BILLION)
    assert made.config["model"]["rope_scaling"] == {"kind": "yarn", "factor": 2.0}
    error = refusal("hf", gpu_host, rows, "data.seq_len=4096", model=BILLION)
    assert "model.rope_scaling={factor: 2}" in error.fix
    error = refusal("hf", gpu_host, rows, "data.seq_len=8192", _LONG, model=BILLION)
    assert "2 times as many" in str(error)


def test_a_vocabulary_is_extended_where_it_is_asked_for(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    tokenizer = TokenizerFacts(path="/tokens", vocab_size=32_100, digest="0")
    spec = (
        "name: small\nframework: hf\nmodel: {path: /weights}\nsteps: 20\n"
        "data: {sources: [{name: main, path: /corpus}], tokenizer: /tokens}\n"
    )
    with pytest.raises(Exception, match="32,100 tokens") as refused:
        plan(load_spec(spec, []), gpu_host, rows, None, BILLION, tokenizer)
    assert "model.extend_vocab" in str(getattr(refused.value, "fix", ""))
    extended = load_spec(spec, ["model.extend_vocab=true"])
    made = plan(extended, gpu_host, rows, None, BILLION, tokenizer)
    assert made.config["model"]["vocab_size"] == 32_128
    assert BILLION.parameters is not None
    assert made.estimates.parameters == BILLION.parameters + 2 * 128 * 2048
    assert "32,000 rows" in decided(made, "model.vocab_size")[1]


def test_attention_is_chosen_with_its_reason(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    value, reason, _ = decided(planned("hf", gpu_host, rows, model=BILLION), "model.attention")
    assert (value, "fused" in reason) == ("sdpa", True)
    gemma = BILLION.model_copy(update={"model_type": "gemma2"})
    made = planned("hf", gpu_host, rows, model=gemma)
    value, reason, _ = decided(made, "model.attention")
    assert (value, made.config["model"]["attention"]) == ("eager", "eager")
    assert "caps its scores" in reason
    flash = planned("hf", gpu_host, rows, "model.attention=flash_attention_2", model=BILLION)
    assert flash.config["model"]["attention"] == "flash_attention_2"


def test_logits_by_chunks_take_less_of_the_memory(gpu_host: HostFacts, rows: CorpusFacts) -> None:
    sets = ("batch.micro_batch=16", "batch.tokens=32768", "data.seq_len=2048")
    whole = planned("hf", gpu_host, rows, *sets, model=BILLION).estimates.memory_gib
    chunked = planned("hf", gpu_host, rows, *sets, "compute.loss=chunked", model=BILLION)
    assert whole is not None and chunked.estimates.memory_gib is not None
    saved = (32768 - 4096) * 32000 * 12 * 1.03 / 2**30
    assert whole - chunked.estimates.memory_gib == pytest.approx(saved, abs=0.02)


@pytest.mark.parametrize(
    ("framework", "sets", "field"),
    [
        ("hf", ["model.rope_base=500000"], "model.rope_base"),
        ("hf", ["model.rope_scaling={factor: 2}"], "model.rope_scaling"),
        ("hf", ["model.rope_scaling={kind: yarn, factor: 0}"], "model.rope_scaling.factor"),
        ("hf", ["model.extend_vocab=true"], "model.extend_vocab"),
        ("hf", ["model.attention=flash_attention_2"], "model.attention"),
        ("hf", ["model.attention=flash"], "model.attention"),
        ("hf", ["model.norm=rmsnorm"], "model.norm"),
        ("hf", ["model.style=modern"], "model.style"),
        (
            "hf",
            ["data.document_masks=true", "model.attention=flash_attention_2"],
            "model.attention",
        ),
        ("hf", ["data.document_masks=true", "compute.strategy=zero3"], "data.document_masks"),
        ("hf", ["compute.loss=chunked", "compute.strategy=fsdp"], "compute.loss"),
        ("trl", ["compute.loss=chunked"], "compute.loss"),
        ("trl", ["data.document_masks=true"], "data.document_masks"),
        ("trl", ["data.filters={dedup: exact}"], "data.filters"),
        ("hf", ["data.filters={dedup: exact}", "data.prepare=stream"], "data.filters"),
        ("nanogpt", ["data.filters={dedup: exact}", "data.prepare=here"], "data.filters"),
        ("hf", ["data.workers=2", "data.prepare=stream"], "data.workers"),
        ("nanogpt", ["data.workers=2"], "data.workers"),
        ("litgpt", ["data.workers=2"], "data.workers"),
        (
            "trl",
            ["method=sft", "method_args.packing=true", "compute.strategy=zero3"],
            "method_args.packing",
        ),
        ("litgpt", ["model.attention=sdpa"], "model.attention"),
        ("litgpt", ["data.document_masks=true"], "data.document_masks"),
        ("nanogpt", ["compute.loss=chunked"], "compute.loss"),
        ("nanogpt", ["model.extend_vocab=true"], "model.extend_vocab"),
    ],
)
def test_what_a_framework_or_a_machine_cannot_do_is_refused_by_name(
    cpu_host: HostFacts, rows: CorpusFacts, framework: str, sets: list[str], field: str
) -> None:
    error = refusal(framework, cpu_host, rows, *sets)
    assert error.field == field
    assert error.fix


def test_a_continued_model_without_positions_of_its_own_is_planned(
    gpu_host: HostFacts, rows: CorpusFacts
) -> None:
    unknown = ModelFacts(path="/weights")
    made = planned("hf", gpu_host, rows, _LONG, "model.extend_vocab=true", model=unknown)
    assert made.config["model"]["extend_vocab"] is True
