"""A resolved configuration in the words of DeepSpeed."""

from __future__ import annotations

import json
from typing import Any

from trainer_runtime.core.config import RunConfig

FILE = "ds_config.json"
_STAGES = {"zero1": 1, "zero2": 2, "zero3": 3, "zero3_offload": 3}
_OFFLOAD = {"device": "cpu", "pin_memory": True}

# The loss scale moves by itself, from 2**16.
_FP16 = {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}


def stage(config: RunConfig) -> int:
    """DeepSpeed's ZeRO stage, 0 where it takes no part."""
    return _STAGES.get(config.compute.strategy, 0)


def text(config: RunConfig, processes: int) -> str:
    """The file that `accelerate launch --deepspeed_config_file` takes; `processes`: of all hosts.

    Optimizer and schedule are left to Trainer, so that they are the same under every strategy.
    """
    precision = config.precision
    micro_batch, accumulation = config.batch.micro_batch, config.batch.accumulation
    document: dict[str, Any] = {
        "train_batch_size": micro_batch * accumulation * processes,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": config.optimizer.max_norm,
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": False} if precision != "fp16" else _FP16,
        "zero_optimization": _zero(config),
        "zero_allow_untested_optimizer": True,
        "steps_per_print": config.steps,
        "wall_clock_breakdown": False,
    }
    if config.compute.strategy == "zero3_offload":
        # DeepSpeed's own Adam for the CPU has to be compiled on the host first.
        document["zero_force_ds_cpu_optimizer"] = False
    return json.dumps(document, indent=2) + "\n"


def _zero(config: RunConfig) -> dict[str, Any]:
    found = stage(config)
    width = config.model.d_model
    zero: dict[str, Any] = {
        "stage": found,
        "overlap_comm": config.compute.device == "cuda",
        "contiguous_gradients": True,
        # "auto": Trainer asks the model, whose width only the host knows.
        "reduce_bucket_size": width * width if width else "auto",
    }
    if found < 3:
        return zero
    zero |= {
        "stage3_prefetch_bucket_size": width * width * 9 // 10 if width else "auto",
        "stage3_param_persistence_threshold": 10 * width if width else "auto",
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    if config.compute.strategy == "zero3_offload":
        zero |= {"offload_optimizer": _OFFLOAD, "offload_param": _OFFLOAD}
    return zero
