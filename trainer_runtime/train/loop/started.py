"""What an attempt records when it begins, in our own loop as in a library's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

import trainer_runtime
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.device import Device
from trainer_runtime.train.checkpoints.checkpoint_store import saved_by
from trainer_runtime.train.checkpoints.checkpointer import CHECKPOINTS
from trainer_runtime.train.checkpoints.restore import Skipped


def record_start(
    emit: Callable[..., None],
    say: Callable[[str], None],
    config: RunConfig,
    hardware: Device,
    *,
    resumed_step: int | None,
    skipped: Sequence[Skipped],
    **measured: object,
) -> None:
    """Records `started`, and why it begins where it does.

    `resumed_step`: the checkpoint's, None for a new start. `measured`: further fields of the event,
    such as `parameters`.
    """
    emit(
        "started",
        attempt=config.attempt.number,
        pid=os.getpid(),
        step=resumed_step or 0,
        target_step=config.steps,
        resumed_from=resumed_step,
        saved_by=None if resumed_step is None else saved_by(CHECKPOINTS, resumed_step),
        skipped=[asdict(checkpoint) for checkpoint in skipped],
        device=str(hardware.device),
        precision=config.precision,
        tokens_per_step=config.batch.tokens,
        peak_flops_source=hardware.peak_flops_source,
        torch=torch.__version__,
        runtime=trainer_runtime.__version__,
        **measured,
    )
    for checkpoint in skipped:
        say(f"checkpoint of step {checkpoint.step} skipped: {checkpoint.reason}")
        emit("decision", what="skip_checkpoint", value=checkpoint.step, reason=checkpoint.reason)
    if resumed_step is not None:
        reason = "the newest checkpoint that verifies"
        emit("decision", what="resume", value=resumed_step, reason=reason)
