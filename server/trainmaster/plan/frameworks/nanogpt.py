"""nanoGPT's way of training, in a script of ours: one process, new models, token shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_runtime.core.config.lr_schedule import SCHEDULES
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.place import Place, nowhere, only, such
from trainmaster.plan.frameworks.framework import Framework
from trainmaster.plan.frameworks.shared_places import (
    NO_PREFERENCES,
    OF_TRANSFORMERS,
    OPTIMIZER,
    PRECISIONS,
    READS_SHARDS,
    SHARDS,
    TEXTS,
    phases_by,
    samples_by,
    stopping_by,
)

_SINGLE = "nanogpt's script is a single process: take hf or litgpt for several"
_NEW_ONLY = nowhere("nanogpt only creates new models: continue from weights with hf, trl or litgpt")


def _one_or_none(value: Any) -> bool:
    return value in ("auto", 0, 1)


def _refusals(spec: TrainingSpec) -> Iterator[Problem]:
    model = spec.model
    if model.rope_base is not None and model.style in ("auto", "gpt2"):
        yield wrong_value(
            "model.rope_base",
            "is given for gpt2, whose positions are learned.",
            "Remove it, or set model.style to llama or modern.",
        )
    if model.value_embeddings and model.style != "modern":
        yield wrong_value(
            "model.value_embeddings",
            "is true, but only modern has them.",
            "Remove it, or set model.style to modern.",
        )
    if model.ngram_embeddings not in ("auto", 0) and model.style != "modern":
        yield wrong_value(
            "model.ngram_embeddings",
            f"is {model.ngram_embeddings}, but only modern has them.",
            "Remove it, or set model.style to modern.",
        )
    if spec.compute.fp8_lm_head and model.style == "modern":
        yield wrong_value(
            "compute.fp8_lm_head",
            "is true, but modern's logits are capped, which the layer in fp8 does not.",
            "Remove it, or take another model.style.",
        )
    for term in spec.optimizer.loss_terms if spec.compute.fp8_lm_head else ():
        yield wrong_value(
            f"optimizer.{term}",
            "is given beside `compute.fp8_lm_head`, whose layer computes the cross-entropy alone.",
            "Remove one of them.",
        )
    if spec.data.document_masks and spec.data.tokenizer == "none":
        yield wrong_value(
            "data.document_masks",
            "is true, but which of the ready tokens ends a text is not known.",
            "Name the tokenizer by data.tokenizer, or remove it.",
        )
    if spec.other_hosts:
        yield Problem(
            "NOT_YET_SUPPORTED",
            "host",
            f"`host` lists {1 + len(spec.other_hosts)} machines, and nanogpt trains in a single "
            "process.",
            "Give `host` a single name, or take framework litgpt, hf or trl.",
        )


def _unrecorded(data: Mapping[str, Any]) -> Iterator[str]:
    name = data["tokenizer"]
    whose = "the data's" if name == "none" else f"data.tokenizer's ({name})"
    yield (
        "A checkpoint of nanoGPT doesn't record which tokens it was trained on: where they are "
        f"not {whose}, the loss begins high."
    )


_PLACES: Mapping[str, str | Place] = {
    "name": "config.json",
    "framework": "train.py",
    "method": only("pretrain", "auto", "pretrain", lacks="nanogpt only pretrains: take trl"),
    "objective": nowhere("its models are causal: take hf"),
    "method_args": nowhere("pretraining has none"),
    "model": "ModelConfig",
    "model.n_layer": "ModelConfig.n_layer",
    "model.n_head": "ModelConfig.n_head",
    "model.n_kv_head": "ModelConfig.n_kv_head",
    "model.d_model": "ModelConfig.d_model",
    "model.d_ff": "ModelConfig.d_ff",
    "model.vocab_size": "ModelConfig.vocab_size",
    "model.style": "ModelConfig.style",
    "model.norm": "ModelConfig.norm",
    "model.activation": "ModelConfig.activation",
    "model.rope_base": "ModelConfig.rope_base",
    "model.window": "ModelConfig.window",
    "model.value_embeddings": "ModelConfig.value_embeddings",
    "model.ngram_embeddings": "ModelConfig.ngram_embeddings",
    "model.dropout": "ModelConfig.dropout",
    "model.preset": "the sizes",
    **OF_TRANSFORMERS,
    "model.path": _NEW_ONLY,
    "model.hub": _NEW_ONLY,
    "model.revision": _NEW_ONLY,
    "adapter": nowhere("nanogpt trains whole models: take trl for an adapter"),
    "data": "prepare, sampler",
    **SHARDS,
    "data.sources[].format": only("prepare", *TEXTS, lacks=NO_PREFERENCES),
    "data.validation[].format": only("prepare", *TEXTS, lacks=NO_PREFERENCES),
    "data.tokenizer": "prepare",
    "data.seq_len": "GPT(seq_len), window of the shards",
    "data.document_masks": "the mask of attention",
    "data.workers": nowhere("its shards are mapped: a batch is read within its step"),
    "data.bad_rows": "prepare",
    "data.prepare": only("prepare", "auto", "box", "here", lacks=READS_SHARDS),
    "batch": "the loop",
    "batch.tokens": "micro_batch * seq_len * accumulation",
    "batch.micro_batch": "rows of a forward pass",
    **OPTIMIZER,
    "schedule": "schedule",
    "schedule.kind": only("schedule", *SCHEDULES),
    "schedule.warmup_steps": "schedule",
    "schedule.min_lr_ratio": "schedule",
    "schedule.steps": "schedule",
    "schedule.power": "schedule",
    "schedule.cycles": "schedule",
    "schedule.warmup": "schedule",
    "steps": "the loop",
    **phases_by("the loop, the sampler"),
    "precision": only("autocast", *PRECISIONS),
    "seed": "torch.manual_seed, the sampler",
    "eval": "the loop",
    "eval.every_steps": "the loop",
    "eval.batches": "the loop",
    **samples_by("the loop"),
    "eval.samples.chat": nowhere("its tokenizers have no chat template"),
    **stopping_by("the loop"),
    "checkpoint.ema": "the loop, the saver",
    "checkpoint": "the saver",
    "compute": "device",
    "compute.gpus": such("device", _one_or_none, "auto, 0 or 1", lacks=_SINGLE),
    "compute.nodes": only("one machine", 1, lacks=_SINGLE),
    "compute.min_nodes": nowhere(_SINGLE),
    "compute.processes": only("one process", "auto", 1, lacks=_SINGLE),
    "compute.strategy": only("one process", "auto", "single", lacks=_SINGLE),
    "compute.activation_checkpointing": only(
        "kept", "auto", False, lacks="nanogpt's script keeps its activations"
    ),
    "compute.compile": "torch.compile",
    "compute.deterministic": "torch.use_deterministic_algorithms",
    "compute.fp8_lm_head": "torch._scaled_mm",
    "tracking": nowhere("nanogpt has no loggers; its metrics are recorded without"),
    "other_hosts": only("one machine", [], lacks=_SINGLE),
}
FRAMEWORK = Framework(
    name="nanogpt",
    places=_PLACES,
    refusals=_refusals,
    is_single_process=True,
    builds=lambda model: model.is_gpt2 or model.is_plain_llama,
    has_modern=True,
    trains_without_tokenizer=True,
    can_recompute=False,
    can_trace=True,
    keeps_attention_scores=True,
    is_deterministic=True,
    unrecorded=_unrecorded,
)
