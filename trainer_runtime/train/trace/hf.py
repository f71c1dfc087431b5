"""The steps of an hf script's new model, as Trainer takes them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from accelerate.utils import convert_outputs_to_fp32
from torch import Tensor

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.config import sizes_of
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.hf.linear_loss import loss_of
from trainer_runtime.train.trace.framework_steps import traced_steps
from trainer_runtime.train.trace.script import loaded_script

# Which tokens are special changes no size.
_TOKENIZER = SimpleNamespace(bos_token_id=0, eos_token_id=0, pad_token_id=None)


def trace(config: RunConfig, folder: Path) -> MemoryTrace:
    """Of the model that the script in the folder makes."""
    attempt: Any = SimpleNamespace(
        config=config,
        objective=Objective(config.optimizer),
        model_sizes=lambda: sizes_of(config),
        is_main=False,
    )
    model = loaded_script(folder).make_model(attempt, _TOKENIZER).train()
    if config.compute.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    loss_by = loss_of(attempt, model)

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return loss_by(outputs, targets, targets.numel())

    return traced_steps(config, model, loss, convert_outputs_to_fp32, use_cache=False)
