"""Whether Trainer can resume from a checkpoint: the strategy decides the optimizer's file layout.

If Trainer does not find an optimizer in the layout that it expects, it fails without a reason or
continues with an empty one.
"""

from __future__ import annotations

from pathlib import Path

from trainer_runtime.core.frameworks import deepspeed
from trainer_runtime.core.frameworks.accelerate import is_fsdp
from trainer_runtime.train.attempt.config import ConfigError, RunConfig

_PLAIN = "single or ddp"
_FSDP = "fsdp"
_ZERO = "zero1 or zero2"
_ZERO3 = "zero3 or zero3_offload"


def refuse_another_strategy(checkpoint: Path | None, config: RunConfig, ranks: int) -> None:
    """Raises: ConfigError: the checkpoint was written under another strategy than the present.

    DeepSpeed's also fit their number of ranks alone.
    """
    if checkpoint is None:
        return
    written, wanted = _strategies_of(checkpoint), _strategies_wanted(config)
    if written != wanted:
        raise ConfigError(
            f"compute.strategy {config.compute.strategy}: {checkpoint.name} "
            f"was written by {written}, whose optimizer no other strategy can read; resume with "
            "that, or `--from scratch`"
        )
    parts = len(_optimizer_parts(checkpoint))
    if parts not in (0, ranks):
        raise ConfigError(
            f"compute.processes {ranks}: {checkpoint.name} was written by {parts} ranks, and "
            f"under {written} a resume needs as many; resume with that, or `--from scratch`"
        )


def _strategies_of(checkpoint: Path) -> str:
    if any(checkpoint.glob("pytorch_model_fsdp*")):
        return _FSDP
    if not _optimizer_parts(checkpoint):
        return _PLAIN
    has_parts_of_model = any(checkpoint.glob("global_step*/zero_pp_rank_*_model_states.pt"))
    return _ZERO3 if has_parts_of_model else _ZERO


def _strategies_wanted(config: RunConfig) -> str:
    if is_fsdp(config):
        return _FSDP
    stage = deepspeed.stage(config)
    return {0: _PLAIN, 3: _ZERO3}.get(stage, _ZERO)


def _optimizer_parts(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("global_step*/*_optim_states.pt"))
