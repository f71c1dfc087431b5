"""Plans of masked language models and of denoising, and what can't be combined with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.plan.architectures import SMALL_BY_OBJECTIVE
from support.plan.framework_plans import decided

from trainer_runtime.core.config.objectives import OBJECTIVES, Spans, spans_of
from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import CorpusFacts, HostFacts, ModelFacts, Plan, TokenizerFacts, plan
from trainmaster.plan.architecture import Decoder
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.decisions.memory import DROPPED_SCORES, GIB, Load, memory
from trainmaster.plan.spec import load_spec
from trainmaster.plan.transformers_architectures import objective_of, whole_config
from trainmaster.runs.planning.hf_config import architecture_of_hf, sizes_of_hf

_TOKENS = 256
TOKENIZER = TokenizerFacts(path="/words", vocab_size=320, digest="0", mask=True, sentinels=100)
BERT = ModelFacts(path="/weights", model_type="bert", architectures=("BertForMaskedLM",))
T5 = ModelFacts(
    path="/weights",
    model_type="t5",
    architectures=("T5ForConditionalGeneration",),
    is_encoder_decoder=True,
)


def made(
    host: HostFacts,
    corpus: CorpusFacts,
    *sets: str,
    framework: str = "hf",
    model: Any = None,
    tokenizer: TokenizerFacts | None = TOKENIZER,
) -> Plan:
    described = {"path": "/weights"} if isinstance(model, ModelFacts) else model
    spec = load_spec(
        f"name: small\nframework: {framework}\nmodel: {described}\nsteps: 20\n"
        "data: {sources: [{name: main, path: /corpus}], tokenizer: /words}\n",
        sets,
    )
    weights = model if isinstance(model, ModelFacts) else None
    return plan(spec, host, corpus, None, weights, tokenizer)


def refusal(*arguments: Any, **named: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as refused:
        made(*arguments, **named)
    return refused.value


def new(arch: str) -> dict[str, Any]:
    return {"arch": arch, "config": SMALL_BY_OBJECTIVE[arch]}


@pytest.mark.parametrize("arch", SMALL_BY_OBJECTIVE)
def test_parameters_are_counted_as_transformers_counts_them(arch: str) -> None:
    import torch
    import transformers

    whole = whole_config(arch, {**SMALL_BY_OBJECTIVE[arch], "vocab_size": 320})
    kind = getattr(transformers, OBJECTIVES[str(objective_of(arch))].model_class)
    config = transformers.AutoConfig.for_model(
        arch, **SMALL_BY_OBJECTIVE[arch], vocab_size=320, pad_token_id=1
    )
    with torch.device("meta"):
        model = kind.from_config(config)
    measured = counted(arch, whole, 64)
    if arch in ("deberta-v2", "electra"):
        assert measured is None
    else:
        assert measured is not None
        assert measured[2] == model.num_parameters()


def test_a_plan_says_what_is_predicted_and_estimates_it(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    masked = made(cpu_host, text_corpus, "objective=masked", model=new("bert"))
    assert decided(masked, "objective")[:2] == (
        "masked",
        "19 of 128 tokens are hidden and predicted, as BERT's.",
    )
    assert masked.config["objective"] == "masked"
    denoising = made(
        cpu_host, text_corpus, "objective=denoising", "method_args.mask_share=0.3", model=new("t5")
    )
    assert decided(denoising, "objective")[1] == (
        "38 of 128 tokens in 13 spans: the encoder reads 104, the decoder learns 52, as T5."
    )
    assert denoising.config["method_args"] == {"mask_share": 0.3}
    for each in (masked, denoising):
        assert each.estimates.parameters and each.estimates.memory_gib
        assert each.config["derived"]["flops_per_token"]


def test_flops_of_an_encoder_decoder_are_those_of_what_each_stack_reads(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    wide = {"d_model": 512, "d_kv": 64, "num_heads": 8, "num_layers": 6, "d_ff": 2048}
    planned = made(
        cpu_host,
        text_corpus,
        "objective=denoising",
        "data.seq_len=512",
        model={"arch": "t5", "config": {**wide, "vocab_size": 32128}},
    )
    # t5-small: of 512 tokens the encoder's 18.9M matrices pass 462, the decoder's 25.2M and the
    # output's 16.4M pass 104, each with six operations.
    by_hand = 6 * (18.9e6 * 462 + (25.2e6 + 16.4e6) * 104) / 512
    assert planned.config["derived"]["flops_per_token"] == pytest.approx(by_hand, rel=0.15)
    assert planned.estimates.parameters == 60_506_624


@pytest.mark.parametrize("arch", ["bert", "t5"])
def test_layers_keep_as_much_as_is_planned(arch: str) -> None:
    spans = spans_of(_TOKENS, 0.15)
    measured = (kept_by(arch, 4, spans) - kept_by(arch, 2, spans)) / 2
    described = counted(arch, wide(arch, 1), _TOKENS)
    assert described is not None
    model = described[0]
    if model.decoder is not None:
        read, written = spans.inputs / _TOKENS, spans.targets / _TOKENS
        model = replace(model, decoder=Decoder(1, read, written))
    scores = 0 if model.decoder is None else DROPPED_SCORES
    planned = memory(Load(model, 0, score_bytes=scores), 1, "fp32", "cpu").activations_gib * GIB
    assert planned == pytest.approx(measured, rel=0.25)


def wide(arch: str, layers: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bert": {
            "hidden_size": 128,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
        },
        "t5": {"d_model": 128, "num_heads": 4, "d_kv": 32, "d_ff": 512},
    }[arch]
    names = {"num_hidden_layers"} if arch == "bert" else {"num_layers", "num_decoder_layers"}
    return whole_config(arch, {**config, **dict.fromkeys(names, layers), "vocab_size": 32})


def kept_by(arch: str, layers: int, spans: Spans) -> int:
    """What one sequence leaves for the backward pass, without the weights. BERT's without dropout,
    with which a CPU has no fused attention."""
    import torch
    from support.plan.held_tensors import kept_bytes
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    kind = AutoModelForMaskedLM if arch == "bert" else AutoModelForSeq2SeqLM
    model = kind.from_config(AutoConfig.for_model(arch, **wide(arch, layers))).train()
    inputs = {"input_ids": torch.zeros(1, _TOKENS, dtype=torch.long)}
    if arch == "t5":
        read, written = (
            torch.zeros(1, of, dtype=torch.long) for of in (spans.inputs, spans.targets)
        )
        inputs = {"input_ids": read, "decoder_input_ids": written}
    return kept_bytes(model, **inputs)


def test_positions_of_roberta_begin_behind_those_of_padding(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    roberta = made(cpu_host, text_corpus, "objective=masked", model=new("roberta"))
    assert roberta.config["model"]["config"]["max_position_embeddings"] == 130
    weights = BERT.model_copy(update={"model_type": "roberta", "max_positions": 130})
    assert made(cpu_host, text_corpus, "objective=masked", model=weights).config["steps"] == 20
    short = weights.model_copy(update={"max_positions": 129})
    assert refusal(cpu_host, text_corpus, "objective=masked", model=short).field == "data.seq_len"


@pytest.mark.parametrize(
    ("objective", "model", "words", "fix"),
    [
        ("causal", BERT, "not a causal", "Set objective to masked"),
        ("causal", T5, "an encoder with a decoder", "Set objective to denoising"),
        ("masked", T5, "not an encoder that fills masks", "ForMaskedLM"),
        ("denoising", BERT, "not an encoder-decoder", "t5"),
        ("causal", new("bert"), "`objective` causal does not train", "Set objective to masked"),
        ("masked", new("t5"), "`objective` masked does not train", "denoising"),
        ("masked", {"n_layer": 2, "n_head": 2, "d_model": 64}, "is a decoder", "bert"),
    ],
)
def test_a_model_of_another_objective_is_refused_with_its_own(
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    objective: str,
    model: Any,
    words: str,
    fix: str,
) -> None:
    error = refusal(cpu_host, text_corpus, f"objective={objective}", model=model)
    assert words in str(error)
    assert fix in str(error.fix)


@pytest.mark.parametrize(
    ("objective", "tokenizer", "words"),
    [
        ("masked", None, "'byte' has no mask token"),
        ("masked", TOKENIZER.model_copy(update={"mask": False}), "no mask token"),
        ("denoising", None, "0 sentinels, of 6"),
        ("denoising", TOKENIZER.model_copy(update={"sentinels": 5}), "5 sentinels, of 6"),
    ],
)
def test_a_tokenizer_without_the_objectives_tokens_is_refused(
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    objective: str,
    tokenizer: TokenizerFacts | None,
    words: str,
) -> None:
    arch = "bert" if objective == "masked" else "t5"
    sets = [f"objective={objective}", *(["data.tokenizer=byte"] if tokenizer is None else [])]
    error = refusal(cpu_host, text_corpus, *sets, model=new(arch), tokenizer=tokenizer)
    assert (error.code, error.field) == ("TOKENIZER_UNUSABLE", "data.tokenizer")
    assert words in str(error)


@pytest.mark.parametrize(
    ("sets", "field"),
    [
        (["data.prepare=stream"], "data.prepare"),
        (["data.document_masks=true"], "data.document_masks"),
        (["compute.loss=chunked"], "compute.loss"),
        (["eval.samples={prompts: [a]}"], "eval.samples"),
        (["tokens=auto", "steps=null"], "tokens"),
        (["method_args.mask_share=0.9"], "method_args.mask_share"),
        (["objective=causal", "method_args.mask_share=0.2", "model.arch=gpt2"], "method_args"),
    ],
)
def test_what_an_objective_has_no_use_for_is_refused(
    cpu_host: HostFacts, text_corpus: CorpusFacts, sets: list[str], field: str
) -> None:
    error = refusal(cpu_host, text_corpus, "objective=masked", *sets, model=new("bert"))
    assert field in str(error)
    assert error.fix


@pytest.mark.parametrize("framework", ["nanogpt", "litgpt", "trl"])
def test_other_frameworks_refuse_all_but_causal(
    cpu_host: HostFacts, text_corpus: CorpusFacts, framework: str
) -> None:
    sizes = {"n_layer": 2, "n_head": 2, "d_model": 64}
    error = refusal(
        cpu_host, text_corpus, "objective=masked", framework=framework, model=sizes, tokenizer=None
    )
    assert "take hf" in str(error)


def test_sizes_of_an_encoder_decoder_are_read_of_its_config() -> None:
    config = {"model_type": "t5", "num_layers": 6, "num_heads": 8, "d_model": 512, "d_kv": 64}
    sizes = sizes_of_hf({**config, "d_ff": 2048, "vocab_size": 32128})
    assert (sizes["n_layer"], sizes["n_head"], sizes["d_head"], sizes["d_ff"]) == (6, 8, 64, 2048)
    assert architecture_of_hf({"is_encoder_decoder": True})["is_encoder_decoder"]
