"""The loss of a model of transformers, also as one operator with its output layer, by chunks of
tokens.

Logits are the largest tensors of a model with a large vocabulary. In chunks only one's exist at a
time: gradients are computed with the loss, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.objective import IGNORED, Objective
from trainer_runtime.train.loop.framework_run import FrameworkRun

CHUNK_TOKENS = 4096
Loss = Callable[[Mapping[str, Tensor], Tensor, Any], Tensor]
# Of logits (N, V) by targets (N), summed.
SummedLoss = Callable[[Tensor, Tensor], Tensor]


def summed_by_chunks(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    summed: SummedLoss,
    chunk_tokens: int = CHUNK_TOKENS,
) -> Tensor:
    """The summed loss of hidden states (N, D) by an output layer (V, D) and targets (N)."""
    apply: Callable[..., Tensor] = _ChunkedLoss.apply
    return apply(hidden, weight, targets, summed, chunk_tokens)


class _ChunkedLoss(torch.autograd.Function):
    """The loss, with its gradients computed beside it."""

    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        summed: SummedLoss,
        chunk_tokens: int,
    ) -> Tensor:
        total = torch.zeros((), device=hidden.device)
        by_hidden, by_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for start in range(0, len(hidden), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            logits = functional.linear(hidden[chunk], weight).float()
            with torch.enable_grad():
                loss = summed(logits.requires_grad_(), targets[chunk])
            total += loss.detach()
            by_logits = torch.autograd.grad(loss, logits)[0]
            by_hidden[chunk] = by_logits @ weight
            by_weight += by_logits.t() @ hidden[chunk]
        context.save_for_backward(by_hidden, by_weight)
        return total

    @staticmethod
    def backward(context: Any, *by_loss: Tensor) -> tuple[Tensor | None, ...]:
        by_hidden, by_weight = context.saved_tensors
        return by_hidden * by_loss[0], by_weight * by_loss[0], None, None, None


def loss_of(attempt: FrameworkRun, model: Any) -> Loss:
    """The loss for Trainer by `compute.loss`, of labels that the data set has already shifted.

    Raises:
        ConfigError: see `chunked_loss`, `liger_loss`.
    """
    kind, precision = attempt.config.compute.loss, attempt.config.precision
    if kind == "chunked":
        return chunked_loss(model, precision, attempt.objective)
    return liger_loss(model, precision) if kind == "liger" else whole_loss(attempt.objective)


def loss_of_rows(attempt: FrameworkRun) -> Loss | None:
    """The loss for TRL, of labels as long as the texts; None where TRL computes it itself."""
    objective = attempt.objective
    return None if objective.is_plain else whole_loss(objective, shifts=True)


def whole_loss(objective: Objective, *, shifts: bool = False) -> Loss:
    """The mean loss by logits which exist together."""

    def loss(
        outputs: Mapping[str, Tensor], labels: Tensor, num_items_in_batch: Any = None
    ) -> Tensor:
        logits = outputs["logits"]
        if shifts:
            logits, labels = logits[:, :-1], labels[:, 1:]
        targets = labels.flatten()
        # In bf16 the sum over a vocabulary is too coarse to distinguish two good models.
        total = objective.summed(logits.float().flatten(0, 1), targets)
        if num_items_in_batch is None:
            num_items_in_batch = (targets != IGNORED).sum().clamp(min=1)
        mean: Tensor = total / num_items_in_batch
        return mean

    return loss


def chunked_loss(model: Any, precision: str, objective: Objective) -> Loss:
    """A loss for Trainer whose logits exist by chunks; the model's training then returns hidden
    states as its logits.

    Raises:
        ConfigError: the model changes what its output layer gives, or has no plain one.
    """
    return _loss_of_hidden(model, precision, partial(summed_by_chunks, summed=objective.summed))


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
