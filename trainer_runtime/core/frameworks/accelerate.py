"""A resolved configuration in the words of `accelerate config`."""

from __future__ import annotations

from typing import Any

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.environment.yaml_text import yaml_text
from trainer_runtime.core.frameworks import deepspeed

FILE = "accelerate_config.yaml"
_WITH_REFERENCE = ("dpo", "kto", "grpo")
_PRECISIONS = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}


def text(config: RunConfig, processes: int) -> str:
    """The file that `accelerate launch --config_file` takes; `processes`: of all hosts.

    Its `MULTI_CPU` starts a single process unless MPI is installed; with `MULTI_GPU` torchrun
    starts the ranks, and on a CPU each rank then detects the others.
    """
    document: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "MULTI_GPU",
        "enable_cpu_affinity": False,
        "gpu_ids": "all",
        "machine_rank": 0,
        "main_process_port": 0,  # any free one: others may train on this machine as well
        "main_training_function": "main",
        "mixed_precision": _PRECISIONS[config.precision],
        "num_machines": config.compute.nodes,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": config.compute.device == "cpu",
    }
    if stage := deepspeed.stage(config):
        document["distributed_type"] = "DEEPSPEED"
        # Precision, batch and offload then stand in DeepSpeed's own file alone.
        del document["mixed_precision"]
        document["deepspeed_config"] = {
            "deepspeed_config_file": deepspeed.FILE,
            "zero3_init_flag": stage == 3 and config.model.has_weights,
        }
    elif is_fsdp(config):
        document["distributed_type"] = "FSDP"
        document["fsdp_config"] = _fsdp(config)
    return yaml_text(document)


def is_fsdp(config: RunConfig) -> bool:
    """Whether PyTorch shares the model out among the ranks."""
    return config.compute.strategy == "fsdp"


def _is_read_by_rank_0(config: RunConfig) -> bool:
    """Whether rank 0 alone reads given weights; new ones every rank has made from the same seed.

    TRL shares a reference model out without what rank 0 has read: the other ranks' is then empty.
    """
    has_reference = config.method in _WITH_REFERENCE and config.adapter is None
    return config.model.has_weights and not has_reference


def _fsdp(config: RunConfig) -> dict[str, Any]:
    return {
        "fsdp_activation_checkpointing": config.compute.activation_checkpointing,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading": _is_read_by_rank_0(config),
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_version": 2,
    }
