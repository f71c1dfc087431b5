"""Has a resumed process sum its gradients in the order in which the ended one did.

DDP reduces gradients in buckets. It forms them by the order of the parameters, and again, by the
order in which gradients came, after the first backward pass of each process (`_rebuild_buckets` of
torch/csrc/distributed/c10d/reducer.cpp). Where an element lies in its bucket decides in which order
a ring adds the ranks' values: the first step after a resume would be rounded otherwise. Two
summands have one order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.checkpoints import random_state

_SUMMANDS_OF_ONE_ORDER = 2


def lay_out_gradients(model: nn.Module, config: RunConfig, ranks: int) -> None:
    """Where an attempt resumes: passes made-up sequences through a language model that DDP wraps,
    forth and back, and leaves gradients and random numbers as they were. For every rank to call.
    """
    if ranks <= _SUMMANDS_OF_ONE_ORDER or config.compute.compile:
        return
    if not isinstance(model, DistributedDataParallel):
        return
    before = random_state.capture()
    device = next(model.parameters()).device
    shape = (config.batch.micro_batch, config.data.seq_len)
    made_up = torch.zeros(shape, dtype=torch.long, device=device)
    _logits(model(made_up)).float().mean().backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)
    random_state.restore(before)


def _logits(output: Any) -> torch.Tensor:
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits
