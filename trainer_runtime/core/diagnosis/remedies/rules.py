"""The changes of rungs. A rule returns {} if its fields are missing or nothing would change.

No rule reduces the tokens of a step's batch or shortens a sequence.
"""

from __future__ import annotations

from trainer_runtime.core.config.optimizers import OPTIMIZERS
from trainer_runtime.core.diagnosis.remedies.rung import Changes, Config, value_at
from trainer_runtime.core.protocol.duration import format_duration, parse_duration

_FIRST_BETA = 0.04
_AFTER_STRATEGY = {
    "single": "zero3_offload",
    "ddp": "zero2",
    "zero1": "zero2",
    "zero2": "zero3",
    "zero3": "zero3_offload",
    "fsdp": "zero3_offload",
}


def split_micro_batch(config: Config) -> Changes:
    """Halve it and double the accumulation; an odd one is divided by its smallest divisor.

    KTO compares the rows of a micro-batch, so at least two remain.
    """
    least = 2 if config.get("method") == "kto" else 1
    micro = value_at(config, "batch.micro_batch")
    accumulation = value_at(config, "batch.accumulation")
    if type(micro) is not int or type(accumulation) is not int or micro < 2 or accumulation < 1:
        return {}
    parts = (divisor for divisor in range(2, micro // least + 1) if micro % divisor == 0)
    part = next(parts, None)
    if part is None:
        return {}
    return {"batch.micro_batch": micro // part, "batch.accumulation": accumulation * part}


def split_on_the_processor(config: Config) -> Changes:
    """`split_micro_batch` for training on the CPU: elsewhere host memory holds no activations."""
    return split_micro_batch(config) if value_at(config, "compute.device") == "cpu" else {}


def double_micro_batch(config: Config) -> Changes:
    micro = value_at(config, "batch.micro_batch")
    accumulation = value_at(config, "batch.accumulation")
    if type(micro) is not int or type(accumulation) is not int or accumulation % 2:
        return {}
    return {"batch.micro_batch": 2 * micro, "batch.accumulation": accumulation // 2}


def checkpoint_activations(config: Config) -> Changes:
    path = "compute.activation_checkpointing"
    return {path: True} if value_at(config, path) is False else {}


def quantize_base(config: Config) -> Changes:
    """For LoRA only, where the base weights are frozen. 4-bit weights can't be sharded."""
    adapter = value_at(config, "adapter")
    if value_at(config, "compute.strategy") in ("zero3", "zero3_offload", "fsdp"):
        return {}
    if not is_lora(config) or "quantize" not in adapter or adapter["quantize"] is not None:
        return {}
    return {"adapter.quantize": "nf4"}


def next_zero_stage(config: Config) -> Changes:
    """Not for LoRA, whose gradients and optimizer state are too small to gain from sharding. A
    single process can only offload to host memory."""
    strategy = value_at(config, "compute.strategy")
    if is_lora(config) or value_at(config, "compute.device") == "cpu":
        return {}
    following = _AFTER_STRATEGY.get(str(strategy))
    return {"compute.strategy": following} if _can_part(config, following) else {}


def part_over_ranks(config: Config) -> Changes:
    """Full sharding, for frameworks without DeepSpeed."""
    if is_lora(config) or value_at(config, "compute.strategy") != "ddp":
        return {}
    return {"compute.strategy": "fsdp"} if _can_part(config, "fsdp") else {}


def _can_part(config: Config, strategy: str | None) -> bool:
    """Whether the optimizer works on the parts that a strategy leaves to a rank."""
    record = OPTIMIZERS.get(str(value_at(config, "optimizer.name")), OPTIMIZERS["adamw"])
    return strategy in record.parted and value_at(config, "optimizer.clip") != "agc"


def is_lora(config: Config) -> bool:
    return bool(value_at(config, "adapter.kind") == "lora")


def to_bf16(config: Config) -> Changes:
    return {"precision": "bf16"} if config.get("precision") == "fp16" else {}


def to_fp32(config: Config) -> Changes:
    return {"precision": "fp32"} if config.get("precision") == "fp16" else {}


def lower_rate(config: Config) -> Changes:
    """Half the rate; the plan's own where the rate is so far above it that half would not help."""
    rate, usual = (value_at(config, f"optimizer.{name}") for name in ("lr", "usual_lr"))
    if not isinstance(rate, (int, float)) or rate <= 0:
        return {}
    if isinstance(usual, (int, float)) and 0 < usual < rate / 2:
        return {"optimizer.lr": usual}
    return {"optimizer.lr": rate / 2}


def raise_beta(config: Config) -> Changes:
    """Double it; from 0, use DeepSeekMath's value (arXiv:2402.03300)."""
    path = "method_args.beta"
    beta = value_at(config, path)
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or beta < 0:
        return {}
    if beta == 0:
        return {path: _FIRST_BETA} if config.get("method") == "grpo" else {}
    return {path: 2 * beta}


def clip_at_one(config: Config) -> Changes:
    clip = value_at(config, "optimizer.grad_clip")
    return {"optimizer.grad_clip": 1.0} if clip is not None and not 0 < clip <= 1.0 else {}


def tighter_clip(config: Config) -> Changes:
    """Halve it; 0 disables clipping, so it becomes 1, as in most recipes."""
    clip = value_at(config, "optimizer.grad_clip")
    if not isinstance(clip, (int, float)) or isinstance(clip, bool):
        return {}
    return {"optimizer.grad_clip": clip / 2 if clip > 0 else 1.0}


def keep_fewer(config: Config) -> Changes:
    changes: Changes = {}
    kept = value_at(config, "checkpoint.keep_latest")
    if type(kept) is int and kept > 1:
        changes["checkpoint.keep_latest"] = 1
    if value_at(config, "checkpoint.keep_every_steps") is not None:
        changes["checkpoint.keep_every_steps"] = None
    return changes


def denser_checkpoints(config: Config) -> Changes:
    return _checkpoints(config, 0.5)


def sparser_checkpoints(config: Config) -> Changes:
    return _checkpoints(config, 2.0)


def sparser_evaluations(config: Config) -> Changes:
    every = value_at(config, "eval.every_steps")
    return {"eval.every_steps": 2 * every} if type(every) is int and every > 0 else {}


def _checkpoints(config: Config, times: float) -> Changes:
    """So many times the interval."""
    every = value_at(config, "checkpoint.every")
    if type(every) is int:
        return _every(config, int(every * times)) if every * times >= 1 else {}
    try:
        return _every(config, format_duration(parse_duration(every) * times))
    except (TypeError, ValueError):
        return {}


def no_compile(config: Config) -> Changes:
    return {"compute.compile": False} if value_at(config, "compute.compile") is True else {}


def not_deterministic(config: Config) -> Changes:
    path = "compute.deterministic"
    return {path: False} if value_at(config, path) is True else {}


def _every(config: Config, every: int | str) -> Changes:
    """Set it explicitly: an automatic value would be decided again."""
    is_auto = value_at(config, "checkpoint.every_is_auto") is True
    return {"checkpoint.every": every} | ({"checkpoint.every_is_auto": False} if is_auto else {})
