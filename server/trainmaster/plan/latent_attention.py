"""Parameters of DeepSeek-V2's blocks: latent attention, shared and routed experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.plan.architecture import Architecture, Experts

# The architecture's name in transformers.
LATENT = "deepseek_v2"


def latent_counted(config: Mapping[str, Any], seq_len: int) -> tuple[Architecture, int, int] | None:
    """The sizes that FLOPs and memory go by, the feed-forward's width, and the parameters; None
    where the configuration leaves a size open.

    Heads count as wide as the mean of queries with keys and of values; the feed-forward as wide as
    the experts that a token passes. Source: DeepSeek-AI 2024 (arXiv 2405.04434), section 2.1.
    """
    active = config["num_experts_per_tok"]
    if active is None:
        return None
    width, heads, layers = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_hidden_layers")
    )
    expert, shared = config["moe_intermediate_size"], config["n_shared_experts"]
    matched = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    embeddings = (1 if config["tie_word_embeddings"] else 2) * config["vocab_size"] * width
    dense = min(config["first_k_dense_replace"], layers)
    routed = (config["n_routed_experts"] + shared) * 3 * width * expert
    routed += width * config["n_routed_experts"]
    blocks = layers * (_attention(config, width, heads) + 2 * width)
    blocks += dense * 3 * width * config["intermediate_size"] + (layers - dense) * routed
    model = Architecture(
        "llama",
        layers,
        heads,
        heads,
        width,
        expert * (active + shared),
        config["vocab_size"],
        seq_len,
        tied=bool(config["tie_word_embeddings"]),
        d_head=(matched + config["v_head_dim"]) // 2,
        experts=Experts(config["n_routed_experts"], active, expert, layers - dense),
    )
    return model, config["intermediate_size"], int(blocks + width + embeddings)


def _attention(config: Mapping[str, Any], width: int, heads: int) -> int:
    nope, rope, value = (
        config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    )
    latent, of_queries = config["kv_lora_rank"], config["q_lora_rank"]
    queries = heads * (nope + rope)
    projected = width * queries
    if of_queries is not None:
        projected = width * of_queries + of_queries + of_queries * queries
    keys = width * (latent + rope) + latent + latent * heads * (nope + value)
    return int(projected + keys + heads * value * width)
