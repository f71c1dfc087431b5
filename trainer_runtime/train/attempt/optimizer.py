"""AdamW, gradient clipping, and the optimizer's state under the names of its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig


class AdamW(torch.optim.AdamW):
    """PyTorch's AdamW without the import of PyTorch's compiler.

    PyTorch wraps these methods to keep its compiler out of them, and the first call of a wrapper
    imports the whole compiler: 800 modules, half of a trainer's start. The methods themselves are
    unchanged, so the results are the same bit for bit.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


def adamw(model: nn.Module, config: OptimizerConfig) -> AdamW:
    """AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101), one fused kernel per step.

    Matrices are decayed; vectors (biases, norms' gains) are not.

    Raises:
        ConfigError: another optimizer is asked for.
    """
    if config.name != "adamw":
        raise ConfigError(f"optimizer.name {config.name!r} can't be trained here; use adamw")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [parameter for parameter in parameters if parameter.dim() >= 2],
            "weight_decay": config.weight_decay,
        },
        {
            "params": [parameter for parameter in parameters if parameter.dim() < 2],
            "weight_decay": 0.0,
        },
    ]
    return AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """The same rate for every group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scales the gradients down to a total 2-norm of `max_norm`; the norm before that, as a scalar.

    `max_norm` 0 clips nothing. A non-finite norm is returned as it is; the guard then ends the step
    (Pascanu et al. 2012, arXiv:1211.5063).
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    # Reading a CPU scalar is free, and most steps need no second pass over the gradients.
    if max_norm > 0 and (norm.is_cuda or norm.item() > max_norm):
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors as `<state>/<parameter>`, such as `exp_avg/embedding.weight`."""
    names: dict[Tensor, str] = {tensor: name for name, tensor in model.named_parameters()}
    return {
        f"{key}/{names[parameter]}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_state_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Puts saved state back; rates, decay and betas stay those of the present config.

    Raises:
        ConfigError: the state is of other parameters.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for path, tensor in tensors.items():
        key, _, name = path.partition("/")
        by_parameter.setdefault(name, {})[key] = tensor
    document = optimizer.state_dict()
    state: dict[int, Any] = {}
    for group, numbered in zip(optimizer.param_groups, document["param_groups"], strict=True):
        for parameter, index in zip(group["params"], numbered["params"], strict=True):
            if names[parameter] in by_parameter:
                state[index] = by_parameter.pop(names[parameter])
    if by_parameter:
        raise ConfigError(f"the saved optimizer has state of unknown {sorted(by_parameter)[:3]}")
    optimizer.load_state_dict({"state": state, "param_groups": document["param_groups"]})
