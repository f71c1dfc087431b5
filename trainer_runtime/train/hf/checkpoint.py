"""Whether Trainer can resume from a checkpoint: the strategy decides the optimizer's file layout.

If Trainer does not find an optimizer in the layout that it expects, it fails without a reason or
continues with an empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer_runtime.core.processes.resharding import strategies_alike
from trainer_runtime.core.protocol.command import option
from trainer_runtime.train.attempt.config import ConfigError, RunConfig

# DeepSpeed's name for what its ranks have saved.
PARTS = "global_step*"


def refuse_another_strategy(checkpoint: Path | None, config: RunConfig) -> None:
    """Raises: ConfigError: the checkpoint was written under another strategy than the present."""
    if checkpoint is None:
        return
    written = strategies_alike(config.framework, _strategy_of(checkpoint))
    if config.compute.strategy not in written:
        raise ConfigError(
            f"compute.strategy {config.compute.strategy}: {checkpoint.name} was written by "
            f"{' or '.join(written)}, whose optimizer no other strategy can read; resume with "
            f"that, or {option('--from', 'scratch')}"
        )


def load_all_weights(trainer: Any, checkpoint: Path) -> None:
    """Has Trainer load all weights of a checkpoint that it resumes from.

    transformers 5 saves some architectures (mixtures of experts) under other names than their
    modules have. Trainer expects these names, warns, and would continue with random weights.
    """

    def loaded(result: Any) -> None:
        model: Any = trainer.model
        missing = _not_shared(model.state_dict(), result.missing_keys)
        if not missing:
            return
        whole, info = type(model).from_pretrained(
            checkpoint, dtype=next(model.parameters()).dtype, output_loading_info=True
        )
        if info["missing_keys"]:
            raise ConfigError(f"{checkpoint.name} lacks weights, such as {missing[0]}")
        model.load_state_dict(whole.state_dict())

    trainer._issue_warnings_after_load = loaded


def _not_shared(tensors: Mapping[str, Tensor], names: Iterable[str]) -> list[str]:
    """Those of the names whose tensor stands under no other name."""
    lost = set(names)
    others = {tensor.data_ptr() for name, tensor in tensors.items() if name not in lost}
    return [
        name for name in sorted(lost & tensors.keys()) if tensors[name].data_ptr() not in others
    ]


def optimizer_parts(checkpoint: Path) -> list[Path]:
    """What each of DeepSpeed's ranks has saved of the optimizer; nothing of another strategy's."""
    return sorted(checkpoint.glob(f"{PARTS}/*_optim_states.pt"))


def parts_folder(checkpoint: Path) -> Path:
    """Where DeepSpeed's ranks have saved their parts."""
    return next(checkpoint.glob(PARTS))


def _strategy_of(checkpoint: Path) -> str:
    """One of those that save it in this layout."""
    if any(checkpoint.glob("pytorch_model_fsdp*")):
        return "fsdp"
    if not optimizer_parts(checkpoint):
        return "ddp"
    has_parts_of_model = any(checkpoint.glob(f"{PARTS}/zero_pp_rank_*_model_states.pt"))
    return "zero3" if has_parts_of_model else "zero2"
