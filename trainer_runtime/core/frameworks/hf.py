"""A resolved configuration in the words of Hugging Face Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.config import EvaluationConfig, RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.config.lr_schedule import WSD_DECAY_SHARE
from trainer_runtime.core.config.optimization import NO_CLIPPING
from trainer_runtime.core.environment.yaml_text import yaml_text
from trainer_runtime.core.frameworks import accelerate, byte_tokenizer, deepspeed
from trainer_runtime.core.frameworks.framework import WRITING, Choice, Framework

TRAINING_ARGUMENTS = "training_args.yaml"
_TENSORBOARD = "tensorboard"

_TRACKERS = {"comet": "comet_ml"}


def files(config: RunConfig) -> dict[str, str]:
    """The framework's own files beside config.json, by name."""
    return {TRAINING_ARGUMENTS: yaml_text(training_arguments(config)), **tokenizer_files(config)}


def tokenizer_files(config: RunConfig) -> dict[str, str]:
    """The tokenizer's folder where the tokenizer is our own."""
    return byte_tokenizer.files() if config.data.tokenizer == "byte" else {}


def training_arguments(config: RunConfig) -> dict[str, Any]:
    """The arguments that every Trainer takes, in the names of `transformers.TrainingArguments`.

    Valid from transformers 4.56 on. It saves only when the callback asks for it.
    """
    batch, optimizer = config.batch, config.optimizer
    has_one_size = Curriculum.of(config).is_uniform
    compute, precision = config.compute, config.precision
    arguments = {
        "output_dir": WRITING,
        "run_name": config.run_id,
        "max_steps": config.steps,
        "per_device_train_batch_size": batch.micro_batch,
        "per_device_eval_batch_size": batch.micro_batch,
        # Where steps differ in size, the run's trainer divides each one itself.
        "gradient_accumulation_steps": batch.accumulation if has_one_size else 1,
        "learning_rate": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "max_grad_norm": optimizer.max_norm or (NO_CLIPPING if optimizer.grad_clip else 0.0),
        **_schedule(config),
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_num_workers": config.data.workers,
        **_device(config),
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "gradient_checkpointing": _checkpoints_activations(config),
        "torch_compile": compute.compile,
        **_evaluation(config.evaluation),
        "save_strategy": "no",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "disable_tqdm": True,
        "report_to": trackers(config) or "none",
    }
    if arguments["gradient_checkpointing"]:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if config.data.is_streamed:
        arguments["ignore_data_skip"] = True  # a resumed stream begins where the run stood
    if compute.processes > 1:
        arguments["ddp_find_unused_parameters"] = False
    return arguments


def _device(config: RunConfig) -> dict[str, Any]:
    """DeepSpeed finds its processor by itself, and takes `use_cpu` for training without it."""
    is_cpu = config.compute.device == "cpu"
    if is_cpu and deepspeed.stage(config):
        return {"use_cpu": False, "ddp_backend": "gloo"}
    return {"use_cpu": is_cpu}


def _checkpoints_activations(config: RunConfig) -> bool:
    """Under FSDP it is accelerate's to do."""
    return config.compute.activation_checkpointing and not accelerate.is_fsdp(config)


def trackers(config: RunConfig) -> list[str]:
    """The trackers that are asked for, in the names of `report_to`."""
    return [_TRACKERS.get(name, name) for name, options in config.tracking.items() if options]


def tracking_variables(config: RunConfig) -> dict[str, str]:
    """What the trackers read from the environment, such as WANDB_PROJECT of wandb's `project`."""
    variables = {}
    for name, options in config.tracking.items():
        if name == "tensorboard" and options:
            variables["TENSORBOARD_LOGGING_DIR"] = _TENSORBOARD
        elif isinstance(options, Mapping):
            for option, value in options.items():
                variables[f"{name}_{option}".upper()] = str(value)
    return variables


def _schedule(config: RunConfig) -> dict[str, Any]:
    """Trainer's closest schedule to ours; the callback sets the exact rates.

    Trainer starts most of its warm-ups at 0, has no minimum for some of its shapes and counts from
    0: only our cosine is among its own schedules.
    """
    kind, warmup_steps = config.schedule.kind, config.schedule.warmup_steps
    min_ratio = config.schedule.min_lr_ratio
    kwargs: dict[str, Any] = {}
    if kind == "cosine":
        name, kwargs = "cosine_warmup_with_min_lr", {"min_lr_rate": min_ratio}
    elif kind in ("linear", "polynomial") and min_ratio < 1.0:
        name = "polynomial"
        power = config.schedule.power if kind == "polynomial" else 1.0
        kwargs = {"power": power, "lr_end": min_ratio * config.optimizer.lr}
    elif kind == "wsd":
        name = "warmup_stable_decay"
        decay_steps = max(
            1, round(WSD_DECAY_SHARE * (config.schedule.length(config.steps) - warmup_steps))
        )
        kwargs = {"num_decay_steps": decay_steps, "decay_type": "1-sqrt", "min_lr_ratio": min_ratio}
    elif kind == "cosine_restarts":
        name, kwargs = "cosine_with_restarts", {"num_cycles": config.schedule.cycles}
    elif kind == "inverse_sqrt":
        name, kwargs = "inverse_sqrt", {"timescale": max(1, warmup_steps)}
    else:
        name = "constant_with_warmup"
    arguments = {"lr_scheduler_type": name, "warmup_steps": warmup_steps}
    return {**arguments, "lr_scheduler_kwargs": kwargs} if kwargs else arguments


def _evaluation(evaluation: EvaluationConfig) -> dict[str, Any]:
    """Every so many steps; the callback asks for the one after the last step."""
    every = evaluation.every_steps
    if not every or not evaluation.batches:
        return {"eval_strategy": "no"}
    return {"eval_strategy": "steps", "eval_steps": every}


FRAMEWORK = Framework(
    name="hf",
    output="hf",
    weights="transformers",
    files=files,
    choices=(
        Choice(
            "weights",
            ("new", "existing"),
            ("model.path", "model.hub"),
            lambda config: "existing" if config.model.has_weights else "new",
        ),
    ),
    rungs=frozenset({"activation_checkpointing", "next_zero_stage"}),
)
