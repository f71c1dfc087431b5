"""A resolved configuration in the words of LitGPT: `litgpt.yaml`, with every value that it takes.

Values in this file only: LitGPT's command line silently ignores some that override a file's. What
LitGPT has no word for is `trainer_runtime.train.litgpt.wrapper`'s: schedules other than its cosine,
the steps at which is saved, strategies, clipping while finetuning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.config import AdapterConfig, ModelConfig, RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.config.optimization import NO_CLIPPING
from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.environment.yaml_text import yaml_text
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.core.frameworks.framework import Choice, Framework

VERSION = "0.5.13"
FILE = "litgpt.yaml"
# Below the run's folder: where LitGPT logs, and writes what becomes ./final.
OUT_FOLDER = "out"
PRETRAIN, FINETUNE, FINETUNE_LORA = "pretrain", "finetune_full", "finetune_lora"

# As LitGPT's commands name them; fp16 has no name in `pretrain`, so there the wrapper sets it.
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
# The usual names of projections, as LitGPT's arguments `lora_*`; its own names stand as well.
LORA_PARTS = {
    "query": ("query", "q_proj"),
    "key": ("key", "k_proj"),
    "value": ("value", "v_proj"),
    "projection": ("projection", "o_proj"),
    "mlp": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "head": ("head", "lm_head"),
}
# LitGPT's own choice, after Hu et al. 2021 (arXiv:2106.09685), table 5.
_ADAPTED = ("query", "value")
_LOGGERS = ("tensorboard", "wandb", "mlflow")
# More tokens than any training reads.
ENDLESS = 10**15


def files(config: RunConfig) -> dict[str, str]:
    """The framework's own files beside config.json, by name."""
    values = pretraining(config) if command(config) == PRETRAIN else _finetune(config)
    tokenizer = byte_tokenizer.files() if config.data.tokenizer == "byte" else {}
    return {FILE: yaml_text(values), **tokenizer}


def command(config: RunConfig) -> str:
    """Which of LitGPT's commands trains this."""
    if config.method == PRETRAIN:
        return PRETRAIN
    return FINETUNE_LORA if config.adapter is not None else FINETUNE


def start_folder(config: RunConfig) -> str | None:
    """Where the model that is trained on stands as a LitGPT checkpoint; None: made from sizes.

    In the cache, by what it is made of: `trainer_runtime.train.litgpt.models` puts it there.
    """
    model = config.model
    source = model.path or model.hub
    if not source:
        return None
    made_of = f"{source}@{model.revision or ''}:{model.preset or ''}"
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    return f"{config.data.cache_dir}/models/litgpt/{digest}"


def pretraining(config: RunConfig) -> dict[str, Any]:
    """What `litgpt pretrain` reads."""
    model, start = config.model, start_folder(config)
    name = model.preset or model.hub or config.name or "model"
    # LitGPT knows its own models by name; a model to continue from brings its sizes.
    is_named = start or model.preset
    sizes = None if is_named else _sizes(model, config.data.seq_len)
    precision = None if config.precision == "fp16" else PRECISIONS[config.precision]
    return {
        "model_name": name,
        "model_config": sizes,
        "out_dir": OUT_FOLDER,
        "precision": precision,
        "initial_checkpoint_dir": start,
        "resume": False,
        "data": {
            "class_path": "trainer_runtime.train.litgpt.data.TokenShards",
            "init_args": {
                "folder": f"{config.data.cache_dir}/data/{config.data.fingerprint}",
                "weights": {source.name: source.weight for source in config.data.sources},
                "seed": config.seed,
            },
        },
        "train": {
            **_train(config),
            "max_tokens": _most_tokens(config),
            "max_steps": None,
            "tie_embeddings": model.style == "gpt2" and not model.preset and not start,
            "max_norm": config.optimizer.max_norm or NO_CLIPPING,
        },
        "eval": {**_eval(config), "max_new_tokens": None},
        "log": _log(config),
        "optimizer": _optimizer(config),
        **_devices(config),
        "tokenizer_dir": _tokenizer(config),
        "logger_name": _logger(config),
        "seed": config.seed,
    }


def _finetune(config: RunConfig) -> dict[str, Any]:
    start, adapter = start_folder(config), config.adapter
    arguments = config.method_args
    quantize = adapter.quantize if adapter else None
    own = lora(adapter) if adapter else {"resume": False}
    return {
        "checkpoint_dir": start,
        "out_dir": OUT_FOLDER,
        # bitsandbytes computes in the precision of what it is given, without autocast.
        "precision": "bf16-true" if quantize else PRECISIONS[config.precision],
        **own,
        **_devices(config),
        "data": {
            "class_path": "trainer_runtime.train.litgpt.data.InstructionRows",
            "init_args": {
                "prompt_style": arguments.get("prompt_style", "auto"),
                "mask_prompt": arguments.get("mask_prompt", True),
            },
        },
        "train": {
            **_train(config),
            # Whichever comes first ends it, and no epoch has less than one step.
            "epochs": config.steps,
            "max_tokens": None,
            "max_steps": config.steps,
            "tie_embeddings": None,
            "max_norm": None,
        },
        "eval": {**_eval(config), "max_new_tokens": 0},
        "log": _log(config),
        "optimizer": _optimizer(config),
        "logger_name": _logger(config),
        "seed": config.seed,
        "access_token": None,
    }


def _sizes(model: ModelConfig, seq_len: int) -> dict[str, Any]:
    """A `litgpt.Config`. LitGPT knows rotary positions only, so style gpt2 has them as well."""
    is_llama = model.style == "llama"
    return {
        "name": f"{model.style}-{model.n_layer}x{model.d_model}",
        "block_size": seq_len,
        "n_layer": model.n_layer,
        "n_embd": model.d_model,
        "n_head": model.n_head,
        "n_query_groups": model.n_kv_head,
        "vocab_size": model.vocab_size,
        "padded_vocab_size": model.vocab_size,
        "norm_class_name": "RMSNorm" if is_llama else "LayerNorm",
        "norm_eps": 1e-5,
        "parallel_residual": False,
        "rotary_percentage": 1.0,
        "rope_base": 10_000,
        "mlp_class_name": "LLaMAMLP" if is_llama else "GptNeoxMLP",
        "intermediate_size": model.d_ff,
        "bias": False,
        "lm_head_bias": False,
    }


def _train(config: RunConfig) -> dict[str, Any]:
    schedule, accumulation = config.schedule, config.batch.accumulation
    is_pretraining = command(config) == PRETRAIN
    return {
        # The wrapper saves: whole folders, after whichever steps the run's cadence asks for.
        "save_interval": None,
        # `pretrain` multiplies it by the accumulation itself.
        "log_interval": 1 if is_pretraining else accumulation,
        "global_batch_size": _global_batch(config),
        "micro_batch_size": config.batch.micro_batch,
        "lr_warmup_steps": schedule.warmup_steps,
        "lr_warmup_fraction": None,
        "epochs": None,
        "max_time": None,
        "max_seq_length": config.data.seq_len,
        "min_lr": float(f"{config.optimizer.lr * schedule.min_lr_ratio:.9g}"),
    }


def _eval(config: RunConfig) -> dict[str, Any]:
    evaluation, batches = config.evaluation, config.evaluation.batches
    return {
        "interval": (evaluation.every_steps if batches else None) or config.steps + 1,
        "max_iters": batches,
        "initial_validation": False,
        "final_validation": batches > 0,
        "evaluate_example": "first",
    }


def _optimizer(config: RunConfig) -> dict[str, Any]:
    """For readers; the wrapper makes it, with groups that LitGPT's file has no words for."""
    optimizer, record = config.optimizer, OPTIMIZERS[config.optimizer.name]
    betas = {} if record.betas is None else {"betas": list(optimizer.betas)}
    return {
        "class_path": f"{record.module}.{record.class_name}",
        "init_args": {"lr": optimizer.lr, **betas, "weight_decay": optimizer.weight_decay},
    }


def lora(adapter: AdapterConfig) -> dict[str, Any]:
    """LitGPT's arguments of an adapter."""
    wanted = _ADAPTED if adapter.targets is None else adapter.targets
    parts = {
        f"lora_{part}": any(name in wanted for name in names) for part, names in LORA_PARTS.items()
    }
    return {
        "quantize": "bnb.nf4" if adapter.quantize == "nf4" else None,
        "lora_r": adapter.r,
        "lora_alpha": round(adapter.alpha),
        "lora_dropout": adapter.dropout,
        **parts,
    }


def _log(config: RunConfig) -> dict[str, Any]:
    wandb = config.tracking.get("wandb") or {}
    given = wandb if isinstance(wandb, Mapping) else {}
    run = given.get("run") or given.get("name") or config.name
    return {"project": given.get("project"), "run": run, "group": given.get("group")}


def _logger(config: RunConfig) -> str:
    """LitGPT writes to one; CSV files are what it writes without any."""
    return next((name for name in _LOGGERS if config.tracking.get(name)), "csv")


def _tokenizer(config: RunConfig) -> str | None:
    """A folder, as seen from the run's; LitGPT copies it into the final model."""
    tokenizer = config.data.tokenizer
    if tokenizer == "byte":
        return byte_tokenizer.FOLDER
    return tokenizer if tokenizer.startswith("/") else start_folder(config)


def _devices(config: RunConfig) -> dict[str, Any]:
    nodes = config.compute.nodes
    return {"devices": _processes(config) // nodes, "num_nodes": nodes}


def _processes(config: RunConfig) -> int:
    return config.compute.processes


def _global_batch(config: RunConfig) -> int:
    return config.batch.micro_batch * config.batch.accumulation * _processes(config)


def _most_tokens(config: RunConfig) -> int:
    """Where steps differ in size, the wrapper ends the loop: LitGPT counts them all alike."""
    if not Curriculum.of(config).is_uniform:
        return ENDLESS
    return config.steps * _global_batch(config) * config.data.seq_len


FRAMEWORK = Framework(
    name="litgpt",
    output="litgpt",
    text_model="litgpt",
    files=files,
    choices=(
        Choice("command", (PRETRAIN, FINETUNE, FINETUNE_LORA), ("method", "adapter"), command),
    ),
    launcher="torchrun",
    modules={"litgpt": "litgpt"},
    gathers_whole_state=True,
    has_chat_template=False,
    rungs=frozenset({"activation_checkpointing", "quantize_base", "part_over_ranks"}),
    rows={"sft": "litgpt sft"},
)
