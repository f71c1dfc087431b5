"""A model's sizes and architecture from its own config, for every family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.files.model_folder import LITGPT
from trainmaster.plan.architecture import Experts

# By our name: theirs, in the order of preference.
_HF = {
    "n_layer": ("num_hidden_layers", "n_layer", "num_layers"),
    "n_head": ("num_attention_heads", "n_head", "num_heads"),
    "n_kv_head": ("num_key_value_heads", "num_attention_heads", "n_head"),
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "d_ff": ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    "d_head": ("head_dim", "d_kv"),
    "vocab_size": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions"),
}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_LITGPT = {
    "n_layer": ("n_layer",),
    "n_head": ("n_head",),
    "n_kv_head": ("n_query_groups", "n_head"),
    "d_model": ("n_embd",),
    "d_ff": ("intermediate_size",),
    "vocab_size": ("padded_vocab_size", "vocab_size"),
    "max_positions": ("block_size",),
}


def sizes_of_hf(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes in a `config.json`, as fields of `ModelFacts`; of multimodal models the text
    part."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    sizes = _found(text, _HF)
    if sizes["d_ff"] is None and sizes["d_model"] is not None and "n_embd" in text:
        sizes["d_ff"] = 4 * sizes["d_model"]  # GPT-2's config says null for that
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    usual = True if config.get("model_type") in ("gpt2", "gemma", "gemma2") else None
    return {
        **sizes,
        "model_type": str(config.get("model_type") or ""),
        "tied": tied if isinstance(tied, bool) else usual,
    }


def has_experts(config: Mapping[str, Any]) -> bool:
    """Whether a `config.json` describes a model of whose feed-forwards a token passes some."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    return (_number(text, _EXPERTS) or 1) > 1


def architecture_of_hf(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a `config.json` says the model is, as fields of `ModelFacts`."""
    names = config.get("architectures")
    return {
        "architectures": tuple(name for name in names if isinstance(name, str))
        if isinstance(names, list)
        else (),
        "is_decoder": config.get("is_decoder") is True,
        "is_encoder_decoder": config.get("is_encoder_decoder") is True,
    }


def sizes_of_litgpt(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes in a `model_config.yaml`, as fields of `ModelFacts`; `d_ff` is None where layers
    with experts are not alike, or have shared ones."""
    sizes, name = _found(config, _LITGPT), config.get("name")
    number = _number(config, ("n_expert",))
    if number is not None:
        active = _number(config, ("n_expert_per_token",))
        width = _number(config, ("moe_intermediate_size", "intermediate_size"))
        is_uneven = _number(config, ("n_shared_expert", "first_k_dense_replace")) is not None
        sizes["d_ff"] = None
        if active is not None and width is not None and sizes["n_layer"] and not is_uneven:
            sizes["d_ff"] = active * width
            sizes["experts"] = Experts(number, active, width, sizes["n_layer"])
    return {**sizes, "model_type": str(name or LITGPT), "tied": False}


def _found(config: Mapping[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    return {ours: _number(config, theirs) for ours, theirs in names.items()}


def _number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
