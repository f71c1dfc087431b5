"""What is done to gradients and weights right before an optimizer's step, in every framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.train.attempt.config import OptimizerConfig

# Brock et al. 2021, section 4: so that weights of zero can change; and that the last layer is left.
_SMALLEST_WEIGHT = 1e-3
_OUTPUTS = ("output.weight", "lm_head.weight")


def hook_elementwise_clipping(
    optimizer: torch.optim.Optimizer,
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
) -> None:
    """Clips each element by `clip: value`, or each row by its weights' norm by `clip: agc`."""
    limit = config.grad_clip
    if config.clip == "norm" or not limit:
        return
    outputs = {id(of) for name, of in parameters.items() if name.endswith(_OUTPUTS)}

    @torch.no_grad()
    def clip(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for parameter in _with_gradients(optimizer):
            if config.clip == "value":
                parameter.grad.clamp_(-limit, limit)
            elif id(parameter) not in outputs:
                clip_adaptively(parameter, parameter.grad, limit)

    optimizer.register_step_pre_hook(clip)


def clip_adaptively(weights: Tensor, gradient: Tensor, share: float) -> None:
    """Scales the gradient of each row down to `share` of the row's norm (Brock et al. 2021,
    arXiv:2102.06171, equation 3); a vector counts as one row."""
    of_weights, of_gradient = _row_norms(weights), _row_norms(gradient)
    longest = of_weights.clamp(min=_SMALLEST_WEIGHT) * share
    gradient.mul_((longest / of_gradient.clamp(min=1e-6)).clamp(max=1.0))


def hook_decay(optimizer: torch.optim.Optimizer, decay: str) -> None:
    """Weight decay of `decay`, for a class that does it otherwise, or not at all."""

    @torch.no_grad()
    def decayed(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"] if group["own_decay"] else ():
                if parameter.grad is None:
                    continue
                if decay == "decoupled":
                    parameter.mul_(1 - group["lr"] * group["own_decay"])
                else:
                    parameter.grad.add_(parameter, alpha=group["own_decay"])

    optimizer.register_step_pre_hook(decayed)


def _row_norms(tensor: Tensor) -> Tensor:
    over = tuple(range(1, tensor.dim())) or None
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=over, keepdim=True)
    return norms


def _with_gradients(optimizer: torch.optim.Optimizer) -> list[Any]:
    groups = optimizer.param_groups
    return [p for group in groups for p in group["params"] if p.grad is not None]
