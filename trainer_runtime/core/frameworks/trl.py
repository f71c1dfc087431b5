"""A resolved configuration in the words of TRL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.environment.yaml_text import yaml_text
from trainer_runtime.core.frameworks import hf
from trainer_runtime.core.frameworks.framework import Choice

# Held-out rows are evaluated as without packing.
_BEST_FIT = {"packing_strategy": "bfd", "eval_packing": False}
# Their names and values are TRL's own.
MethodArguments = Mapping[str, Any]


def files(config: RunConfig) -> dict[str, str]:
    """The framework's own files beside config.json, by name."""
    arguments = yaml_text(training_arguments(config))
    return {hf.TRAINING_ARGUMENTS: arguments, **hf.tokenizer_files(config)}


def training_arguments(config: RunConfig) -> dict[str, Any]:
    """The arguments of the method's own configuration class, such as `DPOConfig`."""
    of_method = _METHODS[config.method]
    return {
        **hf.training_arguments(config),
        # The order of the rows is ours (train/data/row_order.py), so that skips and resumes are
        # exact.
        "train_sampling_strategy": "sequential",
        **_model_arguments(config),
        "use_liger_kernel": config.compute.loss == "liger",
        **of_method(config, config.method_args),
    }


def _model_arguments(config: RunConfig) -> dict[str, Any]:
    """Frozen weights under an adapter needn't be in fp32; weights that are trained are. In fp16
    they are halved beside others in 4 bits alone, which compute in it anyway."""
    given: dict[str, Any] = {}
    if config.adapter is not None and config.precision == "bf16":
        given["dtype"] = "bfloat16"
    elif config.adapter is not None and config.adapter.quantize and config.precision == "fp16":
        given["dtype"] = "float16"
    if config.model.attention is not None:
        given["attn_implementation"] = config.model.attention
    if (revision := config.model.revision) and not config.model.is_changed:
        given["revision"] = revision
    return {"model_init_kwargs": given} if given else {}


def _sft(config: RunConfig, given: MethodArguments) -> dict[str, Any]:
    plain_text = all(source.format == "text" for source in config.data.sources)
    packing = _or(given, "packing", plain_text)
    # Plain texts are joined and cut to the full length, as in pretraining: a step has the planned
    # tokens. Rows stay whole, each where it fits best; train/trl/packing.py keeps them apart.
    strategy: dict[str, Any] = {}
    if packing:
        strategy = {"packing_strategy": "wrapped"} if plain_text else _BEST_FIT
    return {
        "max_length": config.data.seq_len,
        "packing": packing,
        **strategy,
        **_named(given, "completion_only_loss", "assistant_only_loss"),
    }


def _dpo(config: RunConfig, given: MethodArguments) -> dict[str, Any]:
    loss, smoothing = _or(given, "loss", "sigmoid"), _or(given, "label_smoothing", 0.0)
    return {
        "max_length": config.data.seq_len,
        "beta": float(_or(given, "beta", 0.1)),
        # TRL's own name of DPO with labels that may be wrong (Chowdhury et al. 2024,
        # arXiv:2403.00409); its sigmoid would leave the smoothing out without a word.
        "loss_type": ["robust" if smoothing and loss == "sigmoid" else loss],
        "label_smoothing": float(smoothing),
    }


def _kto(config: RunConfig, given: MethodArguments) -> dict[str, Any]:
    return {
        "max_length": config.data.seq_len,
        "beta": float(_or(given, "beta", 0.1)),
    } | _named(given, "desirable_weight", "undesirable_weight")


def _reward(config: RunConfig, given: MethodArguments) -> dict[str, Any]:
    named = _named(given, "center_rewards_coefficient")
    return {"max_length": config.data.seq_len} | named


def _grpo(config: RunConfig, given: MethodArguments) -> dict[str, Any]:
    generations, ranks = _or(given, "num_generations", 8), config.compute.processes
    # An evaluation's batch, too, holds whole groups of generations over all ranks.
    group = generations // math.gcd(generations, ranks)
    groups = max(config.batch.micro_batch // group, 1)
    return {
        "beta": float(_or(given, "beta", 0.0)),
        "num_generations": generations,
        # The rest of `data.seq_len` is the prompt's.
        "max_completion_length": _or(given, "max_completion_length", config.data.seq_len // 2),
        "per_device_eval_batch_size": groups * group,
        "shuffle_dataset": False,
    } | _named(given, "temperature", "top_p")


def _or(given: MethodArguments, name: str, default: Any) -> Any:
    return default if given.get(name) is None else given[name]


def _named(given: MethodArguments, *names: str) -> dict[str, Any]:
    """Those that the configuration names; the others are TRL's defaults."""
    return {name: given[name] for name in names if given.get(name) is not None}


_METHODS: dict[str, Callable[[RunConfig, MethodArguments], dict[str, Any]]] = {
    "sft": _sft,
    "dpo": _dpo,
    "kto": _kto,
    "reward": _reward,
    "grpo": _grpo,
}

FRAMEWORK = replace(
    hf.FRAMEWORK,
    name="trl",
    pretrains=False,
    files=files,
    choices=(
        Choice("method", tuple(_METHODS), ("method",), lambda config: config.method),
        Choice(
            "tuning",
            ("full", "lora"),
            ("adapter", "adapter.kind"),
            lambda config: config.adapter.kind if config.adapter else "full",
        ),
    ),
    modules={"trl": "trl.trainer.sft_trainer"},
    rungs=hf.FRAMEWORK.rungs | {"quantize_base", "raise_beta"},
)
