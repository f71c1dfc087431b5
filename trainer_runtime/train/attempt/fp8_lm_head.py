"""The output layer and its loss with matrix products in fp8, as a training's forward pass.

The products of activations, weights and gradients with a vocabulary are a third of a small model's
arithmetic. Hopper and Ada GPUs do them twice as fast in fp8 (Micikevicius et al. 2022,
arXiv:2209.05433): activations and weights in E4M3, gradients in E5M2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from trainer_runtime.core.environment.gpus import FIRST_FP8_CAPABILITY, FP8_MULTIPLE
from trainer_runtime.train.attempt.config import ConfigError

_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_LARGEST = torch.finfo(_E4M3).max
# No derivative by a logit exceeds 1, so that this scale keeps all of them within E5M2.
GRADIENT_SCALE = 2.0**14
_CHUNK_TOKENS = 16_384  # whose logits exist at once


def refuse_without_fp8(device: torch.device, width: int) -> None:
    """Raises: ConfigError: the device has no matrix products in fp8, or none of this width."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_FP8_CAPABILITY:
        raise ConfigError("compute.fp8_lm_head needs a GPU with fp8, such as an H100 or an L4")
    if width % FP8_MULTIPLE:
        raise ConfigError(f"compute.fp8_lm_head needs a model.d_model in steps of {FP8_MULTIPLE}")


def fp8_linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of hidden states (N, D) by an output layer's weight (V, D) and targets (N).

    Its gradients are computed with it, chunk by chunk, so that no more than a chunk's logits are
    kept. D is a multiple of 16; targets are below V.
    """
    loss: Tensor = _loss_and_gradients(hidden.to(torch.bfloat16), weight, targets)[0]
    return loss


@torch.library.custom_op(
    "trainmaster::fp8_linear_cross_entropy",
    mutates_args=(),
    schema="(Tensor hidden, Tensor weight, Tensor targets) -> (Tensor, Tensor, Tensor)",
)
def _loss_and_gradients(
    hidden: Tensor, weight: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss, and its gradients by hidden states (bf16) and weight (fp32)."""
    count, vocabulary = len(hidden), len(weight)
    hidden8, hidden_scale = _to_fp8(_padded(hidden))
    weight8, weight_scale = _to_fp8(_padded(weight))
    weight8_by_column = _by_column(weight8)
    gradient_scale = hidden_scale.new_tensor(1.0 / (GRADIENT_SCALE * count))
    losses = hidden.new_empty(len(hidden8), dtype=torch.float32)
    hidden_gradient = torch.empty_like(hidden8, dtype=torch.bfloat16)
    weight_gradient: Tensor | None = None
    for begin in range(0, len(hidden8), _CHUNK_TOKENS):
        chunk = slice(begin, begin + _CHUNK_TOKENS)
        inputs = hidden8[chunk]
        logits = _product(inputs, weight8.t(), hidden_scale, weight_scale, fast=True)
        losses[chunk], gradient, by_column = loss_and_gradient(logits, targets[chunk], vocabulary)
        hidden_gradient[chunk] = _product(gradient, weight8_by_column, gradient_scale, weight_scale)
        product = _product(
            by_column.t(), _by_column(inputs), gradient_scale, hidden_scale, dtype=torch.float32
        )
        weight_gradient = product if weight_gradient is None else weight_gradient.add_(product)
    assert weight_gradient is not None  # of one token or more
    return losses[:count].mean(), hidden_gradient[:count], weight_gradient[:vocabulary]


@_loss_and_gradients.register_fake
def _shapes(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    loss = hidden.new_empty((), dtype=torch.float32)
    return loss, torch.empty_like(hidden), weight.new_empty(weight.shape, dtype=torch.float32)


def _keep_gradients(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:])


def _scaled_gradients(ctx: Any, loss_gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor, None]:
    by_hidden, by_weight = ctx.saved_tensors
    return (by_hidden * loss_gradient).to(by_hidden.dtype), by_weight * loss_gradient, None


_loss_and_gradients.register_autograd(_scaled_gradients, setup_context=_keep_gradients)


def loss_and_gradient(
    logits: Tensor, targets: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of logits (N, V), the loss of each row and its derivatives times `GRADIENT_SCALE` in E5M2,
    once by row and once by column in memory. Columns from `vocabulary` and rows without a target
    have none."""
    if logits.is_cuda:
        from trainer_runtime.train.attempt import fp8_kernels

        return fp8_kernels.loss_and_gradient(logits, targets, vocabulary, GRADIENT_SCALE)
    losses = logits.new_zeros(len(logits), dtype=torch.float32)
    gradient = torch.zeros_like(logits, dtype=torch.float32)
    within = logits[: len(targets), :vocabulary].float()
    losses[: len(targets)] = functional.cross_entropy(within, targets, reduction="none")
    likelihoods = within.softmax(1)
    likelihoods[torch.arange(len(targets)), targets] -= 1.0
    gradient[: len(targets), :vocabulary] = likelihoods * GRADIENT_SCALE
    rounded = gradient.to(_E5M2)
    return losses, rounded, _by_column(rounded)


def _to_fp8(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values in E4M3, and by what they have to be multiplied."""
    largest = torch.linalg.vector_norm(values, torch.inf).float().clamp(min=1e-12)
    return (values * (_LARGEST / largest)).to(_E4M3), largest / _LARGEST


def _padded(rows: Tensor) -> Tensor:
    """With rows of zeros up to a number that fp8's products can do."""
    lacking = -len(rows) % FP8_MULTIPLE
    return functional.pad(rows, (0, 0, 0, lacking)) if lacking else rows


def _by_column(matrix: Tensor) -> Tensor:
    """The same matrix with its columns in a row each in memory."""
    return matrix.t().contiguous().t()


def _product(
    one: Tensor,
    other: Tensor,
    one_scale: Tensor,
    other_scale: Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    fast: bool = False,
) -> Tensor:
    """The product of matrices in fp8, `one` by row and `other` by column in memory. `fast` sums in
    fewer bits, which is enough for short sums."""
    if not one.is_cuda:
        return ((one.float() @ other.float()) * (one_scale * other_scale)).to(dtype)
    return torch._scaled_mm(
        one, other, one_scale, other_scale, out_dtype=dtype, use_fast_accum=fast
    )
