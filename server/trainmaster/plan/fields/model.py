"""The sections of the spec on the model and the adapter."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from trainmaster.plan.fields.annotations import (
    Accepts,
    Auto,
    Below1,
    Count,
    CountOrZero,
    FilePath,
    Layers,
    Positive,
    Section,
    Text,
    Width,
    setting,
)

_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/ -]{0,95}")


def _preset(value: str) -> str:
    if not _PRESET.fullmatch(value):
        raise ValueError("no name of a model")
    return value


Preset = Annotated[
    str,
    AfterValidator(_preset),
    Accepts(
        "a published model's name such as gpt2-124m, llama-3-8b or qwen3-0.6b (docs/models.md)"
    ),
]


class RopeScalingSpec(Section):
    """Rotary positions for longer sequences than the model was trained with."""

    kind: Literal["linear", "dynamic", "yarn"] = setting(
        "yarn",
        "How. yarn (Peng et al. 2023, arXiv 2309.00071) needs the least training; linear divides "
        "all positions.",
        changes="never",
    )
    factor: Positive = setting(
        2,
        "How many times longer. Twice is the usual first step.",
        changes="never",
    )


class ModelSpec(Section):
    """The network: by its sizes, by a preset, or by existing weights."""

    n_layer: Layers | None = setting(
        None,
        "Transformer blocks. No default: the size of a model is the user's choice.",
        changes="never",
        unit="blocks",
    )
    n_head: Layers | None = setting(
        None,
        "Attention heads; must divide `d_model`. No default: see `n_layer`.",
        changes="never",
        unit="heads",
    )
    n_kv_head: Layers | None = setting(
        None,
        "Heads for keys and values; must divide `n_head`. Null takes `n_head`, that is ordinary "
        "multi-head attention, since grouped queries pay only when generating.",
        changes="never",
        unit="heads",
    )
    d_model: Width | None = setting(
        None,
        "Width of the residual stream. No default: see `n_layer`.",
        changes="never",
        unit="features",
    )
    d_ff: Width | None = setting(
        None,
        "Width of the feed-forward layer. Null takes 4 `d_model` for gpt2 and 8/3 `d_model`, "
        "rounded up to a multiple of 64 (256 from a width of 2048), for llama, whose gated layer "
        "has three matrices instead of two.",
        changes="never",
        unit="features",
    )
    vocab_size: Width | None = setting(
        None,
        "Rows of the embedding. Null takes the tokenizer's vocabulary, padded to a multiple of "
        "64, which matrix kernels like; a preset takes its own.",
        changes="never",
        unit="tokens",
    )
    style: Auto | Literal["gpt2", "llama", "modern"] = setting(
        "auto",
        "gpt2: learned positions, LayerNorm, GELU, tied embedding, no biases. llama: rotary "
        "positions, RMSNorm, SwiGLU, untied embedding. modern: rotary positions, normalised "
        "queries and keys, RMSNorm without gains, ReLU², untied embedding, logits within ±15, and "
        "zeros where results are added or given out. auto is modern for nanogpt, which with muon "
        "learns fastest, unless the spec names an optimizer, a preset, or a part that modern has "
        "not: then gpt2, the one with the most published figures to compare with. llama for "
        "litgpt, whose positions are all rotary. As Hugging Face's own, gpt2 has biases.",
        changes="never",
    )
    norm: Literal["layernorm", "rmsnorm", "rmsnorm_no_gain"] | None = setting(
        None,
        "The norms of the residual stream. Null takes the style's.",
        changes="never",
    )
    activation: Literal["gelu", "relu2", "swiglu", "geglu"] | None = setting(
        None,
        "Of the feed-forward layer; swiglu and geglu have a gate, a third matrix. Null takes the "
        "style's.",
        changes="never",
    )
    rope_base: Positive | None = setting(
        None,
        "The base of rotary positions; higher for longer distances. Null takes 10,000.",
        changes="never",
    )
    window: Count | None = setting(
        None,
        "Sliding windows: the last tokens that attention sees, itself included. Null: all of the "
        "sequence, as short ones need.",
        changes="never",
        unit="tokens",
    )
    value_embeddings: bool = setting(
        False,
        "Of style modern: every second layer adds an embedding of each token to its values "
        "(Zhou et al. 2024, arXiv 2410.17897). Off, since each is as large as a vocabulary.",
        changes="never",
    )
    ngram_embeddings: Auto | CountOrZero = setting(
        "auto",
        "Of style modern: rows of a table, of which each token's last two, three and four tokens "
        "choose one each by their hash; they are added to its embedding (Pagnoni et al. 2024, "
        "arXiv 2412.09871), of which each block takes a learned share. auto: for bytes by muon, "
        "with which a model learns much faster, at most four times the blocks' parameters; else "
        "0, none. transformers has no such model.",
        changes="never",
    )
    dropout: Below1 = setting(
        0.0,
        "Share of activations dropped while training. Zero, as is usual when pretraining sees "
        "each text about once.",
        changes="resume",
        unit="share",
    )
    preset: Preset | None = setting(
        None,
        "A published model's shape by its name, here or on the hub: llama-7b, "
        "meta-llama/Llama-3.1-8B ([models.md](models.md)). To pre-train, it gets new weights; a "
        "method that tunes is planned for its published ones, which `hub` or `path` must name "
        "before the launch. For litgpt any of its own models' names, too.",
        changes="never",
    )
    rope_scaling: RopeScalingSpec | None = setting(
        None,
        "Longer sequences for existing weights with rotary positions: `data.seq_len` may then be "
        "`factor` times what the model knows.",
        changes="never",
    )
    extend_vocab: bool = setting(
        False,
        "Give existing weights as many rows as `data.tokenizer` has tokens, padded to a multiple "
        "of 64; new rows begin as the mean of the others. Off: a tokenizer that is larger than the "
        "model's vocabulary is refused.",
        changes="never",
    )
    attention: Auto | Literal["sdpa", "flash_attention_2", "eager"] = setting(
        "auto",
        "The implementation of attention in transformers. auto is its fused one (sdpa), or eager "
        "where an architecture caps its scores, which the fused one would leave out. "
        "flash_attention_2 needs a GPU, half precision and the package flash-attn.",
        changes="never",
    )
    arch: Text | None = setting(
        None,
        "A causal architecture of transformers, built with new weights, by its `model_type` there: "
        "qwen3, mistral, mixtral, gemma2, olmo2, falcon, bloom, gpt_neox, phi and some 90 others "
        "([models.md](models.md)).",
        changes="never",
    )
    config: dict[str, Any] = setting(
        {},
        "The sizes of `arch` in the words of its own configuration class. Width, layers, heads and "
        "feed-forward must be given; key heads default to as many as heads, the vocabulary to the "
        "tokenizer's, positions to `data.seq_len`, the rest to transformers' own defaults.",
        changes="never",
    )
    path: FilePath | None = setting(
        None,
        "A folder with weights to continue from, of this machine or as host:/path of the host: a "
        "Hugging Face model, for litgpt also one of its own checkpoints.",
        changes="never",
    )
    hub: Text | None = setting(
        None,
        "A model on the Hugging Face hub to continue from; the host downloads it.",
        changes="never",
    )
    revision: Text | None = setting(
        None,
        "A commit, tag or branch of that model. Null: its main branch.",
        changes="never",
    )


class AdapterSpec(Section):
    """A low-rank adapter that is trained instead of the model's own weights."""

    kind: Literal["lora"] = setting(
        "lora",
        "The kind of adapter.",
        changes="never",
    )
    r: Count = setting(
        16,
        "Rank. 16 is enough for most fine-tuning.",
        changes="never",
        unit="features",
    )
    alpha: Positive = setting(
        32,
        "Scale; twice the rank is customary.",
        changes="never",
    )
    targets: Auto | list[Text] = setting(
        "auto",
        "Which matrices, by the last part of their names. auto takes all linear ones with trl, "
        "queries and values with litgpt, as its own default.",
        changes="never",
    )
    quantize: Literal["nf4"] | None = setting(
        None,
        "Hold the frozen base in 4 bits. Needs a GPU with CUDA, and bitsandbytes there.",
        changes="resume",
    )
