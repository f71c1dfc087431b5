"""A model of the nanogpt scripts in the names and shapes of transformers, and back.

GPT2LMHeadModel has biases, which are zero here, and as many key heads as query heads, so that
shared ones are repeated. LlamaForCausalLM has all that our Llama style has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.config import ModelConfig

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-5
_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
_GPT2_NAMES = {
    "token_embedding.weight": "transformer.wte.weight",
    "position_embedding.weight": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "attention_norm.weight": "ln_1.weight",
    "attention.to_heads.weight": "attn.c_attn.weight",
    "attention.to_residual.weight": "attn.c_proj.weight",
    "feed_forward_norm.weight": "ln_2.weight",
    "feed_forward.widen.weight": "mlp.c_fc.weight",
    "feed_forward.to_residual.weight": "mlp.c_proj.weight",
}
_LLAMA_NAMES = {
    "token_embedding.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "final_norm.weight": "model.norm.weight",
    "attention_norm.weight": "input_layernorm.weight",
    "attention.to_residual.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.to_residual.weight": "mlp.down_proj.weight",
}
_HEADS, _WIDEN = "attention.to_heads.weight", "feed_forward.widen.weight"
_PROJECTIONS = tuple(f"self_attn.{name}_proj.weight" for name in "qkv")
_GATED = ("mlp.gate_proj.weight", "mlp.up_proj.weight")


def can_be_exported(weights: Mapping[str, Tensor], model: ModelConfig) -> bool:
    """Whether the weights are those of an unchanged script: one whose model somebody has changed
    has names of its own."""
    exportable = _LLAMA_NAMES if model.style == "llama" else _GPT2_NAMES
    names = {(match[2] if (match := _BLOCK.fullmatch(name)) else name) for name in weights}
    return names == {*exportable, _HEADS, _WIDEN}


@torch.no_grad()
def exported(weights: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    """The weights under transformers' names, on the CPU and contiguous.

    Arguments:
        weights: By our names, as `can_be_exported` accepts them.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        match = _BLOCK.fullmatch(name)
        if match is None:
            tensors |= _of_model(name, tensor, model)
        elif model.style == "llama":
            start = f"model.layers.{match[1]}."
            tensors |= {
                start + part: part_tensor
                for part, part_tensor in _of_llama(match[2], tensor, model).items()
            }
        else:
            start = f"transformer.h.{match[1]}."
            tensors |= {
                start + part: part_tensor
                for part, part_tensor in _of_gpt2(match[2], tensor, model).items()
            }
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def imported(tensors: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    """The weights under our names again: the inverse of `exported`.

    Raises:
        KeyError: one is missing.
    """
    llama = model.style == "llama"
    names = _LLAMA_NAMES if llama else _GPT2_NAMES
    top = [ours for ours, theirs in names.items() if theirs.startswith(("model.", "transformer."))]
    weights = {ours: tensors[names[ours]] for ours in [*top, *(["output.weight"] if llama else [])]}
    for layer in range(model.n_layer):
        start = f"model.layers.{layer}." if llama else f"transformer.h.{layer}."
        of_layer = {
            name.removeprefix(start): tensor
            for name, tensor in tensors.items()
            if name.startswith(start)
        }
        parts = _from_llama(of_layer) if llama else _from_gpt2(of_layer, model)
        weights |= {f"blocks.{layer}.{ours}": tensor for ours, tensor in parts.items()}
    return weights


def config_of(model: ModelConfig, seq_len: int, end_of_text: int | None) -> dict[str, Any]:
    """The `config.json` by which transformers builds the model."""
    of_all = {
        "vocab_size": model.vocab_size,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "torch_dtype": "float32",
    }
    if model.style == "llama":
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": model.d_model,
            "intermediate_size": model.d_ff,
            "num_hidden_layers": model.n_layer,
            "num_attention_heads": model.n_head,
            "num_key_value_heads": model.n_kv_head,
            "max_position_embeddings": seq_len,
            "rms_norm_eps": NORM_EPSILON,
            "rope_theta": ROPE_BASE,
            "hidden_act": "silu",
            "attention_dropout": model.dropout,
            "tie_word_embeddings": False,
            **of_all,
        }
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": model.d_model,
        "n_inner": model.d_ff,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_positions": seq_len,
        "layer_norm_epsilon": NORM_EPSILON,
        "activation_function": "gelu",
        **dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), model.dropout),
        "tie_word_embeddings": True,
        **of_all,
    }


def _of_model(name: str, tensor: Tensor, model: ModelConfig) -> dict[str, Tensor]:
    if model.style == "llama":
        return {_LLAMA_NAMES[name]: tensor}
    tensors = {_GPT2_NAMES[name]: tensor}
    if name == "final_norm.weight":
        tensors["transformer.ln_f.bias"] = torch.zeros_like(tensor)
    return tensors


def _of_gpt2(name: str, tensor: Tensor, model: ModelConfig) -> dict[str, Tensor]:
    if name == _HEADS:
        tensor = _repeated(tensor, model)
    # Conv1D keeps (in, out).
    place = _GPT2_NAMES[name]
    return {
        place: tensor.t() if tensor.dim() == 2 else tensor,
        place.replace(".weight", ".bias"): torch.zeros_like(tensor[:, 0])
        if tensor.dim() == 2
        else torch.zeros_like(tensor),
    }


def _of_llama(name: str, tensor: Tensor, model: ModelConfig) -> dict[str, Tensor]:
    if name == _HEADS:
        return dict(zip(_PROJECTIONS, torch.split(tensor, _widths(model)), strict=True))
    if name == _WIDEN:
        return dict(zip(_GATED, tensor.chunk(2), strict=True))
    return {_LLAMA_NAMES[name]: tensor}


def _from_gpt2(tensors: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    ours = {theirs: name for name, theirs in _GPT2_NAMES.items()}
    weights = {
        ours[name]: tensor.t().contiguous() if tensor.dim() == 2 else tensor
        for name, tensor in tensors.items()
        if name in ours
    }
    weights[_HEADS] = _shared(weights[_HEADS], model)
    return weights


def _from_llama(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ours = {theirs: name for name, theirs in _LLAMA_NAMES.items()}
    return {
        **{ours[name]: tensor for name, tensor in tensors.items() if name in ours},
        _HEADS: torch.cat([tensors[name] for name in _PROJECTIONS]),
        _WIDEN: torch.cat([tensors[name] for name in _GATED]),
    }


def _widths(model: ModelConfig) -> list[int]:
    of_head = model.d_model // model.n_head
    return [of_head * heads for heads in (model.n_head, model.n_kv_head, model.n_kv_head)]


def _repeated(tensor: Tensor, model: ModelConfig) -> Tensor:
    """Query, key and value weights with a key and value head for each query head."""
    if model.n_kv_head == model.n_head:
        return tensor
    groups, of_head = model.n_head // model.n_kv_head, model.d_model // model.n_head
    query, *shared = torch.split(tensor, _widths(model))
    each = (projection.view(-1, of_head, model.d_model) for projection in shared)
    wide = (projection.repeat_interleave(groups, dim=0).flatten(0, 1) for projection in each)
    return torch.cat((query, *wide))


def _shared(tensor: Tensor, model: ModelConfig) -> Tensor:
    """The inverse of `_repeated`."""
    if model.n_kv_head == model.n_head:
        return tensor
    groups, of_head = model.n_head // model.n_kv_head, model.d_model // model.n_head
    query, *repeated = tensor.chunk(3)
    each = (projection.view(-1, groups, of_head, model.d_model)[:, 0] for projection in repeated)
    return torch.cat((query, *(projection.reshape(-1, model.d_model) for projection in each)))
