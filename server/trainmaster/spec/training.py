"""The sections of the spec that say what is trained: model, data, batch, optimizer, phases."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from trainmaster.spec.annotations import (
    Accepts,
    Auto,
    Below1,
    Count,
    CountOrZero,
    FilePath,
    Layers,
    Name,
    NotNegative,
    Positive,
    Section,
    Share,
    Text,
    Width,
    setting,
)

GPT2_PRESETS = (
    "gpt2-124m",
    "gpt2-350m",
    "gpt2-medium",
    "gpt2-774m",
    "gpt2-large",
    "gpt2-1558m",
    "gpt2-xl",
)


def _preset(value: str) -> str:
    if not _PRESET.fullmatch(value):
        raise ValueError("no name of a model")
    return value


_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
Preset = Annotated[
    str,
    AfterValidator(_preset),
    Accepts(f"{', '.join(GPT2_PRESETS)}, or for litgpt a model's name there such as pythia-160m"),
]


class ModelSpec(Section):
    """The network: by its sizes, by a preset, or by existing weights."""

    n_layer: Layers | None = setting(
        None,
        "Transformer blocks. No default: the size of a model is the user's choice.",
        changes="never",
        unit="blocks",
        nanogpt="ModelConfig.n_layer",
    )
    n_head: Layers | None = setting(
        None,
        "Attention heads; must divide `d_model`. No default: see `n_layer`.",
        changes="never",
        unit="heads",
        nanogpt="ModelConfig.n_head",
    )
    n_kv_head: Layers | None = setting(
        None,
        "Heads for keys and values; must divide `n_head`. Null takes `n_head`, that is ordinary "
        "multi-head attention, since grouped queries pay only when generating.",
        changes="never",
        unit="heads",
        nanogpt="ModelConfig.n_kv_head",
    )
    d_model: Width | None = setting(
        None,
        "Width of the residual stream. No default: see `n_layer`.",
        changes="never",
        unit="features",
        nanogpt="ModelConfig.d_model",
    )
    d_ff: Width | None = setting(
        None,
        "Width of the feed-forward layer. Null takes 4 `d_model` for gpt2 and 8/3 `d_model`, "
        "rounded up to a multiple of 64 (256 from a width of 2048), for llama, whose gated layer "
        "has three matrices instead of two.",
        changes="never",
        unit="features",
        nanogpt="ModelConfig.d_ff",
    )
    vocab_size: Width | None = setting(
        None,
        "Rows of the embedding. Null takes the tokenizer's vocabulary, padded to a multiple of "
        "64, which matrix kernels like; a preset takes its own.",
        changes="never",
        unit="tokens",
        nanogpt="ModelConfig.vocab_size",
    )
    style: Auto | Literal["gpt2", "llama"] = setting(
        "auto",
        "gpt2: learned positions, LayerNorm, GELU, tied embedding, no biases. llama: rotary "
        "positions, RMSNorm, SwiGLU, untied embedding. auto is gpt2, the plainest and the one with "
        "the most published figures to compare with; llama for litgpt, whose positions are rotary.",
        changes="never",
        nanogpt="ModelConfig.style",
    )
    dropout: Below1 = setting(
        0.0,
        "Share of activations dropped while training. Zero, as is usual when pretraining sees "
        "each text about once.",
        changes="resume",
        unit="share",
        nanogpt="ModelConfig.dropout",
    )
    preset: Preset | None = setting(
        None,
        "A published size instead of `n_layer`, `n_head` and `d_model`. gpt2-350m is gpt2-medium, "
        "gpt2-774m gpt2-large, gpt2-1558m gpt2-xl. For litgpt any of its own models' names.",
        changes="never",
        nanogpt="becomes the sizes",
    )
    path: FilePath | None = setting(
        None, "A folder with weights to continue from.", changes="never"
    )
    hub: Text | None = setting(None, "A model on the hub to continue from.", changes="never")
    revision: Text | None = setting(
        None, "A commit, tag or branch of that model. Null: its main branch.", changes="never"
    )


class AdapterSpec(Section):
    """A low-rank adapter that is trained instead of the model's own weights."""

    kind: Literal["lora"] = setting("lora", "The kind of adapter.", changes="never")
    r: Count = setting(
        16,
        "Rank. 16 is enough for most fine-tuning.",
        changes="never",
        unit="features",
    )
    alpha: Positive = setting(32, "Scale; twice the rank is customary.", changes="never")
    targets: Auto | list[Text] = setting(
        "auto", "Which matrices; auto takes all linear ones.", changes="never"
    )
    quantize: Literal["nf4"] | None = setting(
        None, "Hold the frozen base in 4 bits.", changes="never"
    )


class SourceSpec(Section):
    """One body of text among those that are mixed."""

    name: Name | None = setting(
        None,
        "What metrics call it. Null takes the file's or folder's name.",
        changes="never",
        nanogpt="shard names, val_loss/<source>",
    )
    path: FilePath = setting(
        ...,
        "A file or folder of the machine that launches, from where it is sent to the host, or as "
        "host:/path one of the host's own. Relative paths start at the spec's folder. Hidden, "
        "empty and binary files in a folder are left out.",
        changes="never",
        nanogpt="prepare",
    )
    format: Literal["text", "jsonl", "parquet", "arrow", "hf", "tokens", "preference"] = setting(
        "text", "How to read it.", changes="never", nanogpt="prepare"
    )
    weight: Positive = setting(
        1.0,
        "Share of the mix, relative to the other sources' weights.",
        changes="never",
        unit="relative share",
        nanogpt="the sampler of sequences",
    )


class DataSpec(Section):
    """What is read, and how it becomes sequences."""

    sources: list[SourceSpec] = setting(
        ..., "At least one source.", changes="never", nanogpt="prepare"
    )
    tokenizer: Text = setting(
        "auto",
        "byte, a folder, or a name on the hub. auto is the one of existing weights, else byte: one "
        "token per byte and one for the end of a text, 257 in all, which needs no training and "
        "loses nothing.",
        changes="never",
        nanogpt="prepare",
    )
    seq_len: Width = setting(
        128,
        "Tokens in a sequence. Small, so that a first training is quick.",
        changes="never",
        unit="tokens",
        nanogpt="GPT(seq_len), window of the shards",
    )
    prepare: Literal["auto", "box", "here", "stream"] = setting(
        "auto",
        "Where texts become shards. auto is the box, which keeps them in a cache for later runs; "
        "here sends the shards, which with the byte tokenizer are twice the size of the texts; "
        "stream makes none: texts are read and tokenized while training.",
        changes="never",
    )


class BatchSpec(Section):
    """How much each optimizer step sees."""

    tokens: Count = setting(
        8192,
        "Tokens per optimizer step, over all accumulation and ranks. What doesn't divide is "
        "rounded down. The default suits models of a few million parameters.",
        changes="resume",
        unit="tokens",
        nanogpt="micro_batch * seq_len * accumulation",
    )
    micro_batch: Count | Auto = setting(
        "auto",
        "Sequences per rank and forward pass. auto takes the largest that fits into memory.",
        changes="box",
        unit="sequences",
        nanogpt="rows of a forward pass",
    )
    ramp: dict[str, Any] | None = setting(
        None, "Start with smaller batches and grow them.", changes="resume"
    )


class OptimizerSpec(Section):
    """How gradients become steps."""

    name: Literal["adamw", "adam", "sgd", "lion", "adafactor", "muon", "sophia", "lamb"] = setting(
        "adamw",
        "AdamW is what the published learning rates are for.",
        changes="never",
        nanogpt="torch.optim.AdamW",
    )
    lr: Positive | Auto = setting(
        "auto",
        "The highest learning rate of the schedule. auto takes it from the model's size.",
        changes="box",
        nanogpt="AdamW lr, through the schedule",
    )
    weight_decay: NotNegative = setting(
        0.1,
        "Decay of matrices (not of norms), as GPT-3 used it.",
        changes="resume",
        nanogpt="AdamW weight_decay of the matrices",
    )
    grad_clip: NotNegative = setting(
        1.0,
        "Largest norm of the gradient; 0 does not clip. 1.0 as GPT-3 used it.",
        changes="box",
        nanogpt="clip_grad_norm_",
    )
    betas: list[Below1] = setting(
        [0.9, 0.95],
        "AdamW's two decay rates. 0.95 forgets quicker than PyTorch's 0.999, which steadies "
        "training on large batches.",
        changes="resume",
        nanogpt="AdamW betas",
    )


class ScheduleSpec(Section):
    """How the learning rate moves over the run."""

    kind: Literal["cosine", "linear", "constant", "inverse_sqrt", "wsd", "polynomial"] = setting(
        "cosine",
        "Shape after the warm-up; `wsd` stays level and decays over the last fifth. Cosine is "
        "what most published recipes use.",
        changes="resume",
        nanogpt="schedule",
    )
    warmup_steps: CountOrZero | Auto = setting(
        "auto",
        "Steps over which the rate rises from zero. auto takes 2 % of the steps, at most 2000.",
        changes="resume",
        unit="steps",
        nanogpt="schedule",
    )
    min_lr_ratio: Share = setting(
        0.1,
        "Where the rate ends, as a share of its peak. A tenth, as in GPT-3.",
        changes="resume",
        unit="share",
        nanogpt="schedule",
    )


class SuccessSpec(Section):
    """What a phase must have reached when it ends."""

    metric: Text = setting("val_loss", "Which metric is looked at.", changes="resume")
    below: float | None = setting(None, "It must be below this.", changes="resume")
    not_worse_than_start_pct: NotNegative | None = setting(
        None,
        "It may be at most this much above its value at the phase's start.",
        changes="resume",
        unit="%",
    )


class PhaseSpec(Section):
    """One stage of a curriculum."""

    name: Name = setting(..., "What status and metrics call it.", changes="never")
    steps: Count | None = setting(None, "Its length.", changes="resume", unit="steps")
    tokens: Count | None = setting(None, "Its length.", changes="resume", unit="tokens")
    sources: dict[str, Positive] | None = setting(
        None,
        "The mix: weights by source name. Null keeps the sources' own.",
        changes="resume",
        unit="relative share",
    )
    lr: Positive | Auto | None = setting(
        None, "Its highest learning rate. Null goes on with the schedule.", changes="resume"
    )
    success: SuccessSpec | None = setting(
        None, "What it must have reached at its end.", changes="resume"
    )
    on_miss: Literal["warn", "stop", "extend", "rollback"] = setting(
        "warn", "What happens if it has not.", changes="resume"
    )


class EvalSpec(Section):
    """Validation on the held-out split."""

    every_steps: Count = setting(
        50,
        "Steps between validations, and one at the end. 50 shows a curve also in short runs.",
        changes="resume",
        unit="steps",
        nanogpt="the loop",
    )
    batches: Count = setting(
        8,
        "Micro-batches per source; always the same ones, so that values compare.",
        changes="resume",
        unit="micro-batches",
        nanogpt="the loop",
    )
