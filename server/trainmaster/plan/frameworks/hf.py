"""Hugging Face's Trainer, through accelerate and DeepSpeed: pretraining."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer_runtime.core.config.lr_schedule import SCHEDULES
from trainer_runtime.core.config.objectives import MASK_SHARE
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.annotations import HiddenShare
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.place import Place, nowhere, only
from trainmaster.plan.frameworks.arguments import Argument
from trainmaster.plan.frameworks.framework import Framework
from trainmaster.plan.frameworks.packages import ACCELERATE, DATASETS, TRANSFORMERS
from trainmaster.plan.frameworks.pretraining_objectives import objective_refusals
from trainmaster.plan.frameworks.shared_places import (
    NO_PREFERENCES,
    OF_NANOGPT,
    OPTIMIZER,
    OWN_LOSS,
    PRECISIONS,
    SHARDS,
    TEXTS,
    phases_by,
    samples_by,
    stopping_by,
)


def _refusals(spec: TrainingSpec) -> Iterator[Problem]:
    model = spec.model
    yield from objective_refusals(spec)
    yield from _model_refusals(spec)
    if spec.data.document_masks and spec.compute.strategy.startswith("zero3"):
        yield wrong_value(
            "data.document_masks",
            "is true, which can't be verified where zero3 parts the weights from the start.",
            "Set compute.strategy to zero2, ddp or fsdp.",
        )
    if spec.compute.loss != "whole" and spec.compute.strategy in ("fsdp", "zero3", "zero3_offload"):
        yield wrong_value(
            "compute.loss",
            f"is {spec.compute.loss}, which needs the output layer whole, and "
            f"{spec.compute.strategy} parts it.",
            "Set it to whole, or compute.strategy to ddp or zero2.",
        )
    for term in spec.optimizer.loss_terms if spec.compute.loss == "liger" else ():
        yield wrong_value(
            f"optimizer.{term}",
            "is given beside `compute.loss` liger, whose kernel does not give the cross-entropy "
            "apart.",
            "Set compute.loss to chunked or whole; of trl to whole.",
        )
    is_grouped = model.n_kv_head is not None and model.n_kv_head != model.n_head
    if is_grouped and model.style != "llama":
        yield wrong_value(
            "model.n_kv_head",
            f"is {model.n_kv_head}, but Hugging Face's GPT-2 has as many as `model.n_head`.",
            "Remove it, or set model.style to llama.",
        )
    if spec.data.workers not in ("auto", 0) and spec.data.prepare == "stream":
        yield wrong_value(
            "data.workers",
            f"is {spec.data.workers}, but a stream has one order, which one process reads.",
            "Set it to 0 or auto, or data.prepare to auto.",
        )
    if spec.phases is not None and spec.data.prepare == "stream":
        yield wrong_value(
            "data.prepare",
            "is stream, which keeps one mix of its sources: phases read shards.",
            "Set it to auto, or leave phases out.",
        )


def _model_refusals(spec: TrainingSpec) -> Iterator[Problem]:
    model, rotates = spec.model, spec.continues or spec.model.style == "llama" or spec.model.arch
    if model.rope_base is not None and not rotates:
        yield wrong_value(
            "model.rope_base",
            "is given for gpt2, whose positions are learned.",
            "Remove it, or set model.style to llama.",
        )
    if model.rope_scaling is not None and not spec.continues:
        yield wrong_value(
            "model.rope_scaling",
            "is given for a new model, which learns the length of its sequences.",
            "Remove it, or give model.path or model.hub.",
        )
    if model.extend_vocab and (not spec.continues or spec.adapter is not None):
        why = "a new model" if not spec.continues else "an adapter, which trains no embedding"
        yield wrong_value("model.extend_vocab", f"is true for {why}.", "Remove it.")
    if model.attention == "flash_attention_2" and spec.data.document_masks:
        yield wrong_value(
            "model.attention",
            "is flash_attention_2, which keeps texts apart in a batch of one sequence alone.",
            "Set it to sdpa, or remove data.document_masks.",
        )


def _unrecorded(data: Mapping[str, Any]) -> Iterator[str]:
    if any(source["format"] == "text" for source in data["sources"]):
        yield (
            "A folder of Trainer doesn't record how texts became tokens. Here their line ends are "
            "kept; run_clm.py's reader of text files drops them, and where it was used the loss "
            "begins high: give copies without line ends."
        )


_PLACES: Mapping[str, str | Place] = {
    "name": "TrainingArguments.run_name, as the id",
    "framework": "transformers.Trainer",
    "method": only("Trainer", "auto", "pretrain", lacks="it only pretrains: take trl"),
    "objective": "AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM",
    "method_args": "the examples of the objective",
    "model": "the model",
    "model.n_layer": "GPT2Config.n_layer, LlamaConfig.num_hidden_layers",
    "model.n_head": "GPT2Config.n_head, LlamaConfig.num_attention_heads",
    "model.n_kv_head": "LlamaConfig.num_key_value_heads",
    "model.d_model": "GPT2Config.n_embd, LlamaConfig.hidden_size",
    "model.d_ff": "GPT2Config.n_inner, LlamaConfig.intermediate_size",
    "model.vocab_size": "GPT2Config.vocab_size, LlamaConfig.vocab_size",
    "model.style": only(
        "GPT2LMHeadModel or LlamaForCausalLM",
        "auto",
        "gpt2",
        "llama",
        lacks="modern is nanogpt's",
    ),
    **OF_NANOGPT,
    "model.rope_base": "config.rope_parameters",
    "model.rope_scaling": "config.rope_parameters",
    "model.rope_scaling.kind": "config.rope_parameters",
    "model.rope_scaling.factor": "config.rope_parameters",
    "model.extend_vocab": "resize_token_embeddings",
    "model.attention": "attn_implementation",
    "model.dropout": (
        "GPT2Config.resid_pdrop, embd_pdrop, attn_pdrop; LlamaConfig.attention_dropout"
    ),
    "model.preset": "the sizes, or AutoConfig.for_model",
    "model.arch": "AutoConfig.for_model, from_config of the objective's class",
    "model.config": "AutoConfig.for_model",
    "model.path": "from_pretrained of the objective's class",
    "model.hub": "from_pretrained of the objective's class",
    "model.revision": "from_pretrained(revision)",
    "adapter": nowhere("our script for HF Trainer trains whole models: take trl for an adapter"),
    "data": "train_dataset, eval_dataset",
    **SHARDS,
    "data.sources[].format": only("prepare", *TEXTS, lacks=NO_PREFERENCES),
    "data.validation": "prepare, eval_dataset",
    "data.validation[].path": "prepare, eval_dataset",
    "data.validation[].format": only("prepare", *TEXTS, lacks=NO_PREFERENCES),
    "data.tokenizer": "prepare, AutoTokenizer.from_pretrained",
    "data.seq_len": "window of the shards",
    "data.document_masks": "position_ids",
    "data.bad_rows": "prepare",
    "data.workers": "TrainingArguments.dataloader_num_workers",
    "data.prepare": "prepare, train_dataset (an IterableDataset)",
    "batch": "TrainingArguments",
    "batch.tokens": "TrainingArguments.gradient_accumulation_steps",
    "batch.micro_batch": "TrainingArguments.per_device_train_batch_size",
    **OPTIMIZER,
    "optimizer.lr": "TrainingArguments.learning_rate",
    "optimizer.grad_clip": "TrainingArguments.max_grad_norm",
    "schedule": "TrainingArguments",
    "schedule.kind": only(
        "TrainingArguments.lr_scheduler_type; the run sets the exact rates", *SCHEDULES
    ),
    "schedule.warmup_steps": "TrainingArguments.warmup_steps; the run sets the exact rates",
    "schedule.min_lr_ratio": "TrainingArguments.lr_scheduler_kwargs; the run sets the exact rates",
    "schedule.steps": "the run sets the exact rates",
    "schedule.power": "the run sets the exact rates",
    "schedule.cycles": "the run sets the exact rates",
    "schedule.warmup": "the run sets the exact rates",
    "steps": "TrainingArguments.max_steps",
    **phases_by("the run's callback, the sampler"),
    "precision": only("TrainingArguments.bf16, TrainingArguments.fp16", *PRECISIONS),
    "seed": "TrainingArguments.seed, TrainingArguments.data_seed",
    "eval": "TrainingArguments.eval_strategy",
    "eval.every_steps": "TrainingArguments.eval_steps",
    "eval.batches": "eval_dataset, cut to so many",
    **samples_by("the run's callback"),
    "eval.samples.chat": "apply_chat_template",
    **stopping_by("the run's callback"),
    "checkpoint.ema": "the run's callback",
    "checkpoint": "the run's callback",
    "compute": "accelerate_config.yaml",
    "compute.gpus": "ranks of the launcher, TrainingArguments.use_cpu",
    "compute.nodes": "torchrun; the job",
    "compute.min_nodes": "supervisor",
    "compute.processes": "accelerate_config.yaml: num_processes",
    "compute.strategy": only(
        "accelerate_config.yaml: distributed_type; ds_config.json",
        "auto",
        "single",
        "ddp",
        "fsdp",
        "zero1",
        "zero2",
        "zero3",
        "zero3_offload",
    ),
    "compute.activation_checkpointing": "TrainingArguments.gradient_checkpointing",
    "compute.compile": "TrainingArguments.torch_compile",
    "compute.deterministic": "torch.use_deterministic_algorithms",
    "compute.fp8_lm_head": OWN_LOSS,
    "compute.loss": "compute_loss_func",
    "tracking": "TrainingArguments.report_to",
    "other_hosts": "torchrun",
}
FRAMEWORK = Framework(
    name="hf",
    places=_PLACES,
    refusals=_refusals,
    arguments={
        "pretrain": {
            MASK_SHARE: Argument(
                HiddenShare,
                None,
                "Share of the tokens that `objective` masked or denoising hides; 0.15 as in BERT "
                "and T5.",
            )
        }
    },
    has_biases=True,
    # ZeRO rather than FSDP: it has a stage between replicated and sharded weights, the supervisor
    # can change stages, and it can offload state to host memory.
    strategies=("ddp", "zero2", "zero3"),
    # An adapter's state is too small for sharing it to gain anything.
    adapter_strategies=("ddp", "zero3"),
    can_trace=True,
    packages=(TRANSFORMERS, ACCELERATE, DATASETS),
    packages_gib=0.7,
    # They reach the logger as variables: wandb's `project` as WANDB_PROJECT.
    loggers={
        "tensorboard": (),
        "wandb": ("project", "name", "entity", "run_group", "tags", "mode"),
        "mlflow": ("tracking_uri", "experiment_name"),
        "neptune": ("project", "mode"),
        "clearml": ("project", "task"),
        "comet": ("project_name", "workspace", "mode"),
    },
    unrecorded=_unrecorded,
)
