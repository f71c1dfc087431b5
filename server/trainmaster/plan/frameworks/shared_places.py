"""Values and reasons that several frameworks' places have in common."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config.optimizers import OPTIMIZERS, SOPHIA_LACKS
from trainer_runtime.core.files.corpus import SHARD_FORMATS
from trainmaster.plan.fields.place import Place, nowhere, only

ROWS = ("text", "jsonl", "parquet", "arrow", "hf", "preference", *SHARD_FORMATS)
TEXTS = ("text", "jsonl", "parquet", "arrow", "hf", "tokens", *SHARD_FORMATS)
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
NO_PREFERENCES = "preferences are for trl's dpo, kto and reward"
READS_SHARDS = "it reads token shards: take hf to stream"
OWN_LOSS = nowhere("the framework's loss is its own")
_OF_NANOGPT = nowhere("for nanogpt's scripts, whose parts can be chosen one by one")
# What the models of frameworks have no words for.
OF_NANOGPT: Mapping[str, Place] = {
    f"model.{name}": _OF_NANOGPT
    for name in ("norm", "activation", "window", "value_embeddings", "ngram_embeddings")
}
_OF_TRANSFORMERS = nowhere("transformers' architectures are for hf and trl")
_OF_EXISTING = nowhere("hf and trl change existing weights")
OF_TRANSFORMERS: Mapping[str, Place] = {
    "model.arch": _OF_TRANSFORMERS,
    "model.config": _OF_TRANSFORMERS,
    "model.attention": nowhere("its attention is its own: take hf or trl"),
    "model.extend_vocab": _OF_EXISTING,
    "model.rope_scaling": _OF_EXISTING,
    "model.rope_scaling.kind": _OF_EXISTING,
    "model.rope_scaling.factor": _OF_EXISTING,
    "compute.loss": nowhere("for hf and trl"),
}
# Token shards, read by a sampler of sequences.
SHARDS: Mapping[str, str] = {
    "data.sources": "prepare",
    "data.sources[].name": "shard names, val_loss/<source>",
    "data.sources[].path": "prepare",
    "data.sources[].weight": "the sampler of sequences",
    "data.sources[].license": "prepare",
    **{
        f"data.filters{member}": "prepare"
        for member in (*("", ".min_chars", ".gopher_quality", ".c4_quality", ".dedup", ".pii"),)
    },
    "data.validation": "prepare",
    "data.validation[].name": "shard names, val_loss/<name>",
    "data.validation[].path": "prepare",
    "data.tokenizer.train": "prepare",
    "data.tokenizer.size": "prepare",
}


_BUILDER = "the builder of optimizers"
# One builder for all: the place of each value is the same.
OPTIMIZER: Mapping[str, str | Place] = {
    "optimizer": _BUILDER,
    "optimizer.name": only(_BUILDER, "auto", *OPTIMIZERS, lacks=SOPHIA_LACKS),
    "optimizer.lr": "rate of each group, by the schedule",
    "optimizer.weight_decay": "decay of matrices",
    "optimizer.decay": "the optimizer, or a hook before its step",
    "optimizer.grad_clip": "clipping",
    "optimizer.clip": "clipping, or a hook before the step",
    "optimizer.betas": "betas",
    "optimizer.momentum": "momentum",
    "optimizer.eps": "eps",
    "optimizer.z_loss": "the loss",
    "optimizer.label_smoothing": "the loss",
    "optimizer.focal_gamma": "the loss",
    "optimizer.groups": "groups of parameters",
    "optimizer.groups[].match": "groups of parameters",
    "optimizer.groups[].lr_scale": "rate of the group",
    "optimizer.groups[].weight_decay": "decay of the group",
}
_PHASE_SIZES = (".batch", ".seq_len")


def phases_by(where: str, *, sizes: str | Place | None = None) -> Mapping[str, str | Place]:
    """The places of phases and of a growing batch; `sizes`: those of a step's own size."""
    members = (
        *("", ".name", ".steps", ".tokens", ".sources", ".success", ".on_miss"),
        *(".lr", ".lr.kind", ".lr.from", ".lr.to", ".lr.warmup_steps"),
        *(".success.metric", ".success.below", ".success.not_worse_than_start_pct"),
    )
    of_sizes: str | Place = where if sizes is None else sizes
    return {
        "phases": where,
        **{f"phases[]{member}": where for member in members if member},
        **{f"phases[]{member}": of_sizes for member in _PHASE_SIZES},
        **{f"batch.ramp{member}": of_sizes for member in ("", ".from", ".over")},
    }


def stopping_by(where: str) -> Mapping[str, str]:
    """The places of early stopping."""
    members = ("", ".patience", ".metric", ".min_delta")
    return {f"eval.early_stopping{member}": where for member in members}


def samples_by(where: str) -> Mapping[str, str]:
    """The places of recorded samples, but for `chat`."""
    members = ("", ".prompts", ".every", ".max_tokens", ".temperature")
    return {f"eval.samples{member}": where for member in members}
