"""A model of the nanogpt scripts in the names and shapes of transformers, and back.

GPT2LMHeadModel has biases, which are zero here, and as many key heads as query heads, so that
shared ones are repeated. LlamaForCausalLM has all that our Llama style has, MistralForCausalLM its
windows too. NanoChatForCausalLM, of transformers 5, has what our modern style has, but rotates the
other way round: the halves of each query and key head change places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.core.config.model import STYLES

NORM_EPSILON = 1e-5
LOGIT_CAP = 15.0
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
_NANOCHAT_NAMES = {
    "token_embedding.weight": "model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "attention.to_residual.weight": "self_attn.o_proj.weight",
    "feed_forward.widen.weight": "mlp.fc1.weight",
    "feed_forward.to_residual.weight": "mlp.fc2.weight",
}
_NAMES = {"gpt2": _GPT2_NAMES, "llama": _LLAMA_NAMES, "modern": _NANOCHAT_NAMES}
_HEADS, _WIDEN = "attention.to_heads.weight", "feed_forward.widen.weight"
_PROJECTIONS = tuple(f"self_attn.{name}_proj.weight" for name in "qkv")
_GATED = ("mlp.gate_proj.weight", "mlp.up_proj.weight")


def can_be_exported(weights: Mapping[str, Tensor], model: ModelConfig) -> bool:
    """Whether the weights are those of an unchanged script, for whose model transformers has its
    own: a model that somebody has changed has names of its own."""
    names = {(match[2] if (match := _BLOCK.fullmatch(name)) else name) for name in weights}
    return model.is_exported and names == {*_NAMES[model.style], _HEADS, _WIDEN}


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
        else:
            of_block = _of_gpt2 if model.style == "gpt2" else _of_rotary
            tensors |= {
                f"{_layer(model)}{match[1]}.{part}": part_tensor
                for part, part_tensor in of_block(match[2], tensor, model).items()
            }
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def imported(tensors: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    """The weights under our names again: the inverse of `exported`.

    Raises:
        KeyError: one is missing.
    """
    names = _NAMES[model.style]
    of_model = ("model.", "transformer.", "lm_head.")
    weights = {
        ours: tensors[theirs] for ours, theirs in names.items() if theirs.startswith(of_model)
    }
    from_block = _from_gpt2 if model.style == "gpt2" else _from_rotary
    for layer in range(model.n_layer):
        start = f"{_layer(model)}{layer}."
        of_layer = {
            name.removeprefix(start): tensor
            for name, tensor in tensors.items()
            if name.startswith(start)
        }
        parts = from_block(of_layer, model)
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
    if model.style != "gpt2":
        return {**_rotary_config(model, seq_len), **of_all}
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": model.d_model,
        "n_inner": model.d_ff,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_positions": seq_len,
        "layer_norm_epsilon": NORM_EPSILON,
        "activation_function": model.activation,
        **dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), model.dropout),
        "tie_word_embeddings": True,
        **of_all,
    }


def _rotary_config(model: ModelConfig, seq_len: int) -> dict[str, Any]:
    of_style: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    if model.style == "modern":
        of_style = {
            "architectures": ["NanoChatForCausalLM"],
            "model_type": "nanochat",
            "final_logit_softcapping": LOGIT_CAP,
            "pad_token_id": None,
        }
    elif model.window is not None:
        of_style = {
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "sliding_window": model.window,
        }
    return {
        **of_style,
        "hidden_size": model.d_model,
        "intermediate_size": model.d_ff,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": model.n_kv_head,
        "max_position_embeddings": seq_len,
        "rms_norm_eps": NORM_EPSILON,
        # Before transformers 5 the one, since then the other.
        "rope_theta": model.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rotary_base},
        "hidden_act": STYLES[model.style].exported[model.activation],
        "attention_dropout": model.dropout,
        "tie_word_embeddings": False,
    }


def _layer(model: ModelConfig) -> str:
    return "transformer.h." if model.style == "gpt2" else "model.layers."


def _of_model(name: str, tensor: Tensor, model: ModelConfig) -> dict[str, Tensor]:
    tensors = {_NAMES[model.style][name]: tensor}
    if model.style == "gpt2" and name == "final_norm.weight":
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


def _of_rotary(name: str, tensor: Tensor, model: ModelConfig) -> dict[str, Tensor]:
    if name == _HEADS:
        parts = _turned(torch.split(tensor, _widths(model)), model)
        return dict(zip(_PROJECTIONS, parts, strict=True))
    if name == _WIDEN and model.is_gated:
        return dict(zip(_GATED, tensor.chunk(2), strict=True))
    return {_NAMES[model.style][name]: tensor}


def _from_gpt2(tensors: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    ours = {theirs: name for name, theirs in _GPT2_NAMES.items()}
    weights = {
        ours[name]: tensor.t().contiguous() if tensor.dim() == 2 else tensor
        for name, tensor in tensors.items()
        if name in ours
    }
    weights[_HEADS] = _shared(weights[_HEADS], model)
    return weights


def _from_rotary(tensors: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    ours = {theirs: name for name, theirs in _NAMES[model.style].items()}
    weights = {ours[name]: tensor for name, tensor in tensors.items() if name in ours}
    weights[_HEADS] = torch.cat(_turned([tensors[name] for name in _PROJECTIONS], model))
    if model.is_gated:
        weights[_WIDEN] = torch.cat([tensors[name] for name in _GATED])
    return weights


def _turned(projections: Sequence[Tensor], model: ModelConfig) -> list[Tensor]:
    """Query, key and value weights; of NanoChat with the halves of each query and key head
    changed. It is its own inverse."""
    query, key, value = projections
    if model.style != "modern":
        return [query, key, value]
    of_head = model.d_model // model.n_head
    return [
        *(
            rows.view(-1, 2, of_head // 2, model.d_model).flip(1).reshape(-1, model.d_model)
            for rows in (query, key)
        ),
        value,
    ]


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
