"""The formulas of activations beside the tensors that transformers' models really keep."""

from __future__ import annotations

import pytest
import torch

from trainmaster.plan.architecture import Architecture
from trainmaster.plan.decisions.memory import GIB, Load, Sharing, memory

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


def _kept_bytes(style: str, layers: int) -> int:
    """What one sequence leaves for the backward pass, without the weights."""
    model = _model(style, layers).to(torch.bfloat16)
    weights = {weight.data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    tokens = torch.zeros(1, _TOKENS, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=tokens, labels=tokens)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize(("style", "within"), [("llama", 0.02), ("gpt2", 0.16)])
def test_a_layer_keeps_as_much_as_the_formula_counts(style: str, within: float) -> None:
    measured = (_kept_bytes(style, 4) - _kept_bytes(style, 2)) / 2
    kind = "llama" if style == "llama" else "gpt2"
    model = Architecture(kind, 1, 4, 4, _WIDTH, _INNER, 32, _TOKENS)
    counted = memory(Load(model, 0), 1, "bf16", "cuda", Sharing()).activations_gib * GIB
    assert counted == pytest.approx(measured, rel=within)
