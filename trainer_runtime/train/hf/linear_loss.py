"""The output layer and the loss of a model of transformers as one operator, by chunks of tokens.

Logits are the largest tensors of a model with a large vocabulary. Here only a chunk's exist at a
time: gradients are computed with the loss, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.loop.framework_run import FrameworkRun

CHUNK_TOKENS = 4096
Loss = Callable[[Mapping[str, Tensor], Tensor, Any], Tensor]


def summed_by_chunks(
    hidden: Tensor, weight: Tensor, targets: Tensor, chunk_tokens: int = CHUNK_TOKENS
) -> Tensor:
    """The summed loss of hidden states (N, D) by an output layer (V, D) and targets (N)."""
    apply: Callable[..., Tensor] = _ChunkedLoss.apply
    return apply(hidden, weight, targets, chunk_tokens)


class _ChunkedLoss(torch.autograd.Function):
    """The loss, with its gradients computed beside it."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk_tokens: int
    ) -> Tensor:
        total = torch.zeros((), device=hidden.device)
        by_hidden, by_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for start in range(0, len(hidden), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            logits = functional.linear(hidden[chunk], weight).float()
            total += functional.cross_entropy(logits, targets[chunk], reduction="sum")
            by_logits = logits.softmax(dim=-1)
            by_logits[torch.arange(len(logits), device=logits.device), targets[chunk]] -= 1
            by_hidden[chunk] = by_logits @ weight
            by_weight += by_logits.t() @ hidden[chunk]
        context.save_for_backward(by_hidden, by_weight)
        return total

    @staticmethod
    def backward(context: Any, *by_loss: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_hidden, by_weight = context.saved_tensors
        return by_hidden * by_loss[0], by_weight * by_loss[0], None, None


def loss_of(attempt: FrameworkRun, model: Any, whole: Loss) -> Loss:
    """The loss by `compute.loss`; `whole` is that of logits which exist together.

    Raises:
        ConfigError: see `chunked_loss`, `liger_loss`.
    """
    made = {"chunked": chunked_loss, "liger": liger_loss}.get(attempt.config.compute.loss)
    return whole if made is None else made(model, attempt.config.precision)


def chunked_loss(model: Any, precision: str) -> Loss:
    """A loss for Trainer whose logits exist by chunks; the model's training then returns hidden
    states as its logits.

    Raises:
        ConfigError: the model changes what its output layer gives, or has no plain one.
    """
    return _loss_of_hidden(model, precision, summed_by_chunks)


def liger_loss(model: Any, precision: str) -> Loss:
    """The same by Liger's kernel.

    Raises:
        ConfigError: as `chunked_loss`, or liger-kernel isn't installed.
    """
    try:
        kernel = import_module("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"compute.loss liger needs the package liger-kernel: {error}") from None
    fused = kernel(reduction="sum")

    def summed(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = fused(weight, hidden, targets)
        return loss

    return _loss_of_hidden(model, precision, summed)


def _loss_of_hidden(
    model: Any, precision: str, summed: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Loss:
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.bias is not None:
        raise ConfigError("compute.loss: the model has no plain output layer; set it to whole")
    project = head.forward
    head.forward = lambda hidden: hidden if model.training else project(hidden)
    _refuse_changed_logits(model, head)

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def loss(
        outputs: Mapping[str, Tensor], labels: Tensor, num_items_in_batch: Any = None
    ) -> Tensor:
        given, targets = outputs["logits"].flatten(0, 1), labels.flatten()
        if model.training:
            with torch.autocast(given.device.type, dtype=half, enabled=half is not None):
                total = summed(given, head.weight, targets)
        else:
            total = functional.cross_entropy(given.float(), targets, reduction="sum")
        return total / (len(targets) if num_items_in_batch is None else num_items_in_batch)

    return loss


@torch.no_grad()
def _refuse_changed_logits(model: Any, head: torch.nn.Linear) -> None:
    """Raises: ConfigError: what the model gives are not the logits of its output layer."""
    tokens = torch.arange(2, device=head.weight.device)[None]
    was_training = model.training
    logits = model.eval()(input_ids=tokens).logits
    model.training = True  # its own flag alone, by which it gives hidden states, without dropout
    hidden = model(input_ids=tokens).logits
    model.train(was_training)
    expected = functional.linear(hidden, head.weight)
    if expected.shape != logits.shape or not torch.allclose(expected, logits, atol=1e-4):
        raise ConfigError(
            "compute.loss: the model changes its logits after the output layer; set it to whole"
        )
