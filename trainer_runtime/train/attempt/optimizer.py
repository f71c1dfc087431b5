"""Makes the optimizer of a configuration; clips gradients; the state under parameters' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.core.config.optimizers import OPTIMIZERS, OptimizerRecord
from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig
from trainer_runtime.train.attempt.muon import Joined, with_muon
from trainer_runtime.train.attempt.parameter_groups import parameter_groups


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of the model's trained parameters.

    Raises:
        ConfigError: it is not known, is not in this PyTorch, or a group matches no parameter.
    """
    record = OPTIMIZERS.get(config.name)
    if record is None:
        raise ConfigError(f"optimizer.name {config.name!r} can't be trained here; use adamw")
    orthogonalizes = config.name == "muon"
    matrices, groups = parameter_groups(model, config, orthogonalizes=orthogonalizes)
    if orthogonalizes:
        matrices_by, all_others_by = with_muon(_class_of(record)), OPTIMIZERS["adamw"]
        momentum = config.momentum if config.momentum is not None else record.momentum
        muon = matrices_by(
            matrices, lr=config.lr, momentum=momentum, adjust_lr_fn="match_rms_adamw"
        )
        adamw = _class_of(all_others_by)(groups, **_options(all_others_by, config))
        return Joined(muon, adamw)
    return _class_of(record)(groups, **_options(record, config))


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """The same rate for every group, but for those that have a scale."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_scale", 1.0)


def skips_by_itself(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step does nothing where `found_inf` is set, as fused ones' of PyTorch."""
    return all(group.get("fused") for group in optimizer.param_groups)


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


def _options(record: OptimizerRecord, config: OptimizerConfig) -> dict[str, Any]:
    """The arguments that the class takes, of the configuration."""
    return {"lr": config.lr, "betas": config.betas, "eps": record.eps, "fused": True}


def _class_of(record: OptimizerRecord) -> type[Any]:
    """The class, without the import of PyTorch's compiler.

    PyTorch wraps these methods to keep its compiler out of them, and the first call of a wrapper
    imports the whole compiler: 800 modules, half of a trainer's start. The methods themselves are
    unchanged, so the results are the same bit for bit.

    Raises:
        ConfigError: this PyTorch is older than the class.
    """
    if torch.__version__ < record.since:  # compared as versions
        raise ConfigError(f"optimizer {record.class_name} needs PyTorch {record.since} or newer")
    whole: type[Any] = getattr(torch.optim, record.class_name)
    methods = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    plain = {name: unwrap(getattr(whole, name)) for name in methods}
    return type(whole.__name__, (whole,), {**plain, "step": torch.no_grad()(unwrap(whole.step))})
