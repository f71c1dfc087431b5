"""The formulas of activations beside the tensors that transformers' models really keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.plan.held_tensors import kept_bytes

from trainmaster.plan.architecture import Architecture
from trainmaster.plan.architecture_counts import counted
from trainmaster.plan.decisions.memory import (
    CAPPED_SCORES,
    EAGER_SCORES,
    GIB,
    Load,
    Sharing,
    memory,
)
from trainmaster.plan.transformers_architectures import whole_config

_WIDTH, _INNER, _TOKENS = 64, 176, 64


def _model(style: str, layers: int) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    if style == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=_WIDTH,
                intermediate_size=_INNER,
                num_hidden_layers=layers,
                num_attention_heads=4,
                num_key_value_heads=4,
                vocab_size=32,
            )
        )
    no_dropout = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    return GPT2LMHeadModel(
        GPT2Config(
            n_embd=_WIDTH,
            n_inner=_INNER,
            n_layer=layers,
            n_head=4,
            vocab_size=32,
            n_positions=_TOKENS,
            activation_function="gelu_pytorch_tanh",
            **no_dropout,
        )
    )


def _kept_bytes(model: torch.nn.Module) -> int:
    """What one sequence leaves for the backward pass."""
    tokens = torch.arange(_TOKENS)[None] % 32
    return kept_bytes(model, input_ids=tokens, labels=tokens, use_cache=False)


@pytest.mark.parametrize(("style", "within"), [("llama", 0.02), ("gpt2", 0.16)])
def test_a_layer_keeps_as_much_as_the_formula_counts(style: str, within: float) -> None:
    four, two = (_kept_bytes(_model(style, layers).to(torch.bfloat16)) for layers in (4, 2))
    measured = (four - two) / 2
    kind = "llama" if style == "llama" else "gpt2"
    model = Architecture(kind, 1, 4, 4, _WIDTH, _INNER, 32, _TOKENS)
    counted = memory(Load(model, 0), 1, "bf16", "cuda", Sharing()).activations_gib * GIB
    assert counted == pytest.approx(measured, rel=within)


_SIZES: dict[str, Any] = {
    "hidden_size": _WIDTH,
    "num_attention_heads": 4,
    "vocab_size": 32,
    "tie_word_embeddings": False,
}
_LLAMA_LIKE = {"intermediate_size": _INNER, "num_key_value_heads": 4}
_GPT_LIKE = {"intermediate_size": 4 * _WIDTH}
_EXPERTS = {
    **_LLAMA_LIKE,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "num_experts": 8,
    "num_experts_per_tok": 4,
}
_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen3": {**_LLAMA_LIKE, "head_dim": 16},
    "qwen3_moe": {**_EXPERTS, "head_dim": 16},
    "mixtral": {**_LLAMA_LIKE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma": {**_LLAMA_LIKE, "head_dim": 16},
    "gemma2": {**_LLAMA_LIKE, "head_dim": 16},
    "gemma3_text": {**_LLAMA_LIKE, "head_dim": 16},
    "olmo2": _LLAMA_LIKE,
    "phi": _GPT_LIKE,
    "phi3": {**_LLAMA_LIKE, "pad_token_id": 0},
    "gpt_neox": _GPT_LIKE,
}


def _of_transformers(arch: str, attention: str = "sdpa") -> tuple[float, float]:
    """What a layer of one of transformers' architectures keeps, and what is counted."""
    from transformers import AutoConfig, AutoModelForCausalLM

    measured = []
    for layers in (2, 4):
        sizes = {**_SIZES, **_ARCHITECTURES[arch], "num_hidden_layers": layers}
        config = AutoConfig.for_model(arch, **sizes)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        measured.append(_kept_bytes(model.to(torch.bfloat16)))
    described = whole_config(arch, {**sizes, "num_hidden_layers": 1})
    shape = counted(arch, described, _TOKENS)
    assert shape is not None
    scores = 0 if attention == "sdpa" else CAPPED_SCORES if arch == "gemma2" else EAGER_SCORES
    load = Load(shape[0], 0, score_bytes=scores)
    return (measured[1] - measured[0]) / 2, memory(load, 1, "bf16", "cuda").activations_gib * GIB


@pytest.mark.parametrize("arch", _ARCHITECTURES)
def test_a_layer_of_each_architecture_keeps_as_much_as_is_counted(arch: str) -> None:
    measured, ours = _of_transformers(arch)
    assert ours == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("arch", ["gemma2", "qwen3"])
def test_eager_attention_keeps_its_scores_as_well(arch: str) -> None:
    measured, ours = _of_transformers(arch, "eager")
    assert ours == pytest.approx(measured, rel=0.02)
