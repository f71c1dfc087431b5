"""The steps of a framework's loop: forward in the training's precision, loss, backward, clipping,
optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.device import DTYPES
from trainer_runtime.train.attempt.optimizer import clip_gradients, make_optimizer
from trainer_runtime.train.trace.tracker import Tracker
from trainer_runtime.train.trace.without_data import autocast

# Of the model's outputs in fp32 by targets (B, T), divided by the accumulation.
Loss = Callable[[Any, Tensor], Tensor]


def traced_steps(
    config: RunConfig, model: nn.Module, loss: Loss, in_fp32: Callable[[Any], Any], **inputs: Any
) -> MemoryTrace:
    """Of a model in fp32, in its final form; `in_fp32` wraps a forward pass so that it gives fp32,
    as the framework does; `inputs` are the model's beside its tokens.

    Weights that are shared among processes are computed with in half precision, without autocast.
    """
    is_shared = not config.compute.is_whole_on_each_rank
    if is_shared:
        _convert(model, DTYPES[config.precision])
    context = autocast("fp32" if is_shared else config.precision)
    tracker = Tracker(config)
    size = tracker.shape.micro_batch, tracker.shape.seq_len

    def mean_loss() -> Tensor:
        tokens, targets = (torch.zeros(size, dtype=torch.long) for _ in range(2))
        return loss(model(tokens, **inputs), targets)

    model.forward = in_fp32(context(model.forward))
    optimizer = make_optimizer(model, config.optimizer)
    tracker.begin(model, optimizer)
    for step in tracker.steps():
        for _ in range(tracker.accumulation(step)):
            tracker.begin_forward()
            mean = mean_loss()
            tracker.begin_backward()
            torch.autograd.backward(mean)
        tracker.begin_optimizer()
        clip_gradients(model.parameters(), config.optimizer.max_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return tracker.answer()


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    """As `model.to(dtype)`, which can't exchange tensors without data."""
    converted: dict[Tensor, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            made = converted.setdefault(parameter, nn.Parameter(parameter.detach().to(dtype)))
            setattr(module, name, made)
