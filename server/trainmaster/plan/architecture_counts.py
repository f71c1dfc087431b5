"""Parameters of transformers' most frequent causal architectures, as it counts them itself.

A host's meta device counts every architecture; planning knows these without transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainmaster.plan.architecture import LLAMA_LAYER, Architecture, Experts, Layer
from trainmaster.plan.encoder_counts import encoder_counted
from trainmaster.plan.latent_attention import LATENT, latent_counted
from trainmaster.plan.transformers_architectures import (
    FEED_FORWARD,
    HEADS,
    KEY_HEADS,
    LAYERS,
    POSITIONS,
    WIDTH,
    field_named,
)

# A flag, or the name of the configuration's field that says so.
Flag = bool | str


@dataclass(frozen=True, slots=True)
class Shape:
    """What blocks are made of. `norms`: in each. `head_norms`: of queries and keys, by head or of
    `all` heads together. `experts`: the field with their number, `expert_width` that of their
    feed-forward's width where it is another one. `learned`: positions. What layers keep was
    measured with transformers 5.3 (`tests/plan/test_held_tensors.py`)."""

    gated: bool = True
    norms: int = 2
    norm_bias: bool = False
    qkv_bias: Flag = False
    out_bias: Flag = False
    mlp_bias: Flag = False
    output_bias: bool = False
    head_norms: str = ""
    experts: str = ""
    expert_width: str = ""
    embedding_norm: bool = False
    learned: bool = False
    layer: Layer = LLAMA_LAYER


def _biased(flag: Flag, *, norms: int = 2, **parts: Any) -> Shape:
    """Two matrices in the feed-forward and norms with biases, as GPT-2 had them."""
    every = {"qkv_bias": flag, "out_bias": flag, "mlp_bias": flag}
    return Shape(gated=False, norms=norms, norm_bias=True, **{**every, **parts})


_FUSED = Layer(fused=True)
# RMSNorm of queries and keys.
_NORMED = Layer(head_kept_bytes=6.5)
_OLMO2 = Layer(head_kept_bytes=6.5, kept_bytes=7.5)
_ATTENTION: dict[str, Any] = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
COUNTED: Mapping[str, Shape] = {
    "llama": Shape(**_ATTENTION, mlp_bias="mlp_bias"),
    "mistral": Shape(),
    "ministral": Shape(),
    "phi3": Shape(layer=Layer(fused=True, kept_bytes=6.5)),
    "smollm3": Shape(**_ATTENTION, mlp_bias="mlp_bias"),
    "mixtral": Shape(experts="num_local_experts"),
    "qwen3_moe": Shape(
        **_ATTENTION,
        head_norms="head",
        experts="num_experts",
        expert_width="moe_intermediate_size",
        layer=_NORMED,
    ),
    "olmoe": Shape(**_ATTENTION, head_norms="all", experts="num_experts", layer=_NORMED),
    "qwen2": Shape(qkv_bias=True),
    "qwen3": Shape(**_ATTENTION, head_norms="head", layer=_NORMED),
    "gemma": Shape(**_ATTENTION, layer=Layer(kept_bytes=4.5)),
    "gemma2": Shape(**_ATTENTION, norms=4, layer=Layer(kept_bytes=21, capped=True)),
    "gemma3_text": Shape(
        **_ATTENTION, norms=4, head_norms="head", layer=Layer(kept_bytes=21, head_kept_bytes=8.25)
    ),
    "olmo2": Shape(**_ATTENTION, head_norms="all", layer=_OLMO2),
    "olmo3": Shape(**_ATTENTION, head_norms="all", layer=_OLMO2),
    "nanochat": Shape(gated=False, norms=0, **_ATTENTION, layer=_NORMED),
    "phi": _biased(True, norms=1, output_bias=True, layer=Layer(kept_bytes=22)),
    "gpt_neox": _biased(True, **_ATTENTION, layer=Layer(fused=True, kept_bytes=4.5)),
    "bloom": _biased(True, embedding_norm=True, layer=Layer(fused=True, kept_bytes=24)),
    "falcon": _biased("bias", layer=Layer(fused=True, kept_bytes=15)),
    "starcoder2": _biased("use_bias"),
    "gpt2": _biased(True, learned=True, layer=_FUSED),
}
# What begins the names of others, and of LitGPT's models, whose feed-forward has two matrices and
# not three; and of those that fuse queries, keys and values.
_TWO_MATRICES = (
    *("gpt", "pythia", "opt", "bloom", "falcon", "phi-1", "phi-2"),
    *("mpt", "codegen", "nemotron", "persimmon", "xglm", "biogpt"),
)
_OF_OTHERS = dict.fromkeys(("gpt_bigcode", "mpt", "codegen", "persimmon"), _FUSED)
_OF_OTHERS["vaultgemma"] = Layer(capped=True)


def is_gated(model_type: str) -> bool:
    """Whether the feed-forward of a model has a gate, by its `model_type` or LitGPT's name."""
    shape = _shape(model_type)
    return not model_type.startswith(_TWO_MATRICES) if shape is None else shape.gated


def layer_of(model_type: str) -> Layer:
    """How transformers computes a layer of such a model."""
    shape = _shape(model_type)
    return _OF_OTHERS.get(model_type, LLAMA_LAYER) if shape is None else shape.layer


def _shape(model_type: str) -> Shape | None:
    """Of a multimodal model that of its texts."""
    return COUNTED.get(model_type) or COUNTED.get(f"{model_type}_text")


def counted(
    arch: str, config: Mapping[str, Any], seq_len: int
) -> tuple[Architecture, int, int] | None:
    """The sizes that FLOPs and memory go by, the feed-forward's width, and the parameters; None for
    other architectures.

    Arguments:
        config: Complete, with its defaults.
    """
    if arch == LATENT:
        return latent_counted(config, seq_len)
    shape = COUNTED.get(arch)
    if shape is None:
        return encoder_counted(arch, config, seq_len)
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        return None  # layers that are not alike
    width, n_head, n_layer = (
        config[str(field_named(names, config))] for names in (WIDTH, HEADS, LAYERS)
    )
    keys, hidden = field_named(KEY_HEADS, config), field_named(FEED_FORWARD, config)
    hidden = shape.expert_width or hidden
    n_kv_head = (config[keys] if keys else None) or n_head
    d_ff = (config[hidden] if hidden else None) or 4 * width
    if arch == "falcon":
        shape, n_kv_head = _falcon(shape, config, n_head, n_kv_head)
    tied = bool(config["tie_word_embeddings"])
    active = config["num_experts_per_tok"] if shape.experts else 0
    model = Architecture(
        "llama" if shape.gated else "gpt2",
        n_layer,
        n_head,
        n_kv_head,
        width,
        d_ff * (active or 1),
        config["vocab_size"],
        seq_len,
        tied=tied,
        rotary=not shape.learned,
        window=config.get("sliding_window") if config.get("use_sliding_window", True) else None,
        d_head=config.get("head_dim"),
        experts=Experts(config[shape.experts], active, d_ff, n_layer) if shape.experts else None,
        layer=shape.layer,
    )
    return model, d_ff, _parameters(shape, config, model, d_ff)


def _falcon(
    shape: Shape, config: Mapping[str, Any], n_head: int, n_kv_head: int
) -> tuple[Shape, int]:
    """Its first models shared one key head, and one norm of both branches."""
    if config["new_decoder_architecture"]:
        return replace(shape, norms=config["num_ln_in_parallel_attn"] or 2), n_kv_head
    norms = 1 if config["parallel_attn"] else 2
    return replace(shape, norms=norms), 1 if config["multi_query"] else n_head


def _parameters(shape: Shape, config: Mapping[str, Any], model: Architecture, d_ff: int) -> int:
    width, queries, keys = model.d_model, model.query_width, model.kv_width
    norm = 2 * width if shape.norm_bias else width
    matrices = 3 if shape.gated else 2
    feed_forward = matrices * width * d_ff
    if _is_set(shape.mlp_bias, config):
        feed_forward += (matrices - 1) * d_ff + width
    if shape.experts:
        experts = config[shape.experts]
        feed_forward = experts * feed_forward + width * experts
    attention = width * (queries + 2 * keys) + queries * width
    attention += queries + 2 * keys if _is_set(shape.qkv_bias, config) else 0
    attention += width if _is_set(shape.out_bias, config) else 0
    of_head = queries // model.n_head
    attention += {"": 0, "head": 2 * of_head, "all": queries + keys}[shape.head_norms]
    if config.get("qk_layernorm"):  # phi's, with biases
        attention += 4 * of_head
    blocks = model.n_layer * (attention + feed_forward + shape.norms * norm)
    blocks += norm * (min(shape.norms, 1) + shape.embedding_norm)
    embeddings = (1 if model.tied else 2) * model.vocab_size * width
    embeddings += model.vocab_size if shape.output_bias else 0
    positions = config[str(field_named(POSITIONS, config))] * width if shape.learned else 0
    return int(blocks + embeddings + positions)


def _is_set(flag: Flag, config: Mapping[str, Any]) -> bool:
    return bool(config[flag]) if isinstance(flag, str) else flag
