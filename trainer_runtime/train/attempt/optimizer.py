"""Makes the optimizer of a configuration, sets its rates, and clips gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.core.config.optimizers import OPTIMIZERS, OptimizerRecord
from trainer_runtime.train.attempt.averaging import with_exact_averages
from trainer_runtime.train.attempt.config import ConfigError, OptimizerConfig
from trainer_runtime.train.attempt.muon import Joined, Muon
from trainer_runtime.train.attempt.optimizer_state import NamedState
from trainer_runtime.train.attempt.parameter_groups import parameter_groups, trained
from trainer_runtime.train.attempt.step_hooks import hook_decay, hook_elementwise_clipping

# Adafactor's rates are then absolute, as all others' are, where PyTorch's are multiples of the
# size of a matrix's elements, but for those of more than 1.
_ABSOLUTE_RATES = 1.0


def make_optimizer(
    model: nn.Module, config: OptimizerConfig, dimensions: Mapping[str, int] | None = None
) -> torch.optim.Optimizer:
    """The optimizer of the model's trained parameters.

    `dimensions`: how many each parameter has, by its name, where the model's are in parts.

    Raises:
        ConfigError: it is not known, is not in this PyTorch, its package is not installed, or a
            group matches no parameter.
    """
    record = OPTIMIZERS.get(config.name)
    if record is None:
        names = ", ".join(OPTIMIZERS)
        raise ConfigError(f"optimizer.name {config.name!r} can't be trained here; use {names}")
    orthogonalizes = config.name == "muon"
    matrices, groups = parameter_groups(
        model, config, dimensions or {}, orthogonalizes=orthogonalizes
    )
    decay = config.decay or record.usual_decay
    if decay != record.decay:
        for group in (*matrices, *groups):
            group["own_decay"], group["weight_decay"] = group["weight_decay"], 0.0
    optimizer: torch.optim.Optimizer
    if orthogonalizes:
        optimizer = _muon(record, config, matrices, groups)
    else:
        optimizer = _class_of(record)(groups, **_options(record, config))
    hook_elementwise_clipping(optimizer, config, dict(trained(model)))
    if decay != record.decay:
        hook_decay(optimizer, decay)
    return optimizer


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


def _muon(
    record: OptimizerRecord,
    config: OptimizerConfig,
    matrices: list[dict[str, Any]],
    others: list[dict[str, Any]],
) -> torch.optim.Optimizer:
    """Muon for the blocks' matrices, AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101) for the
    embeddings, the output layer and the vectors."""
    adamw = OPTIMIZERS["adamw"]
    muon = _plain(Muon)(matrices, lr=config.lr, momentum=_momentum(record, config))
    joined: torch.optim.Optimizer = _plain(Joined)(
        muon, _class_of(adamw)(others, **_options(adamw, config))
    )
    return joined


def _options(record: OptimizerRecord, config: OptimizerConfig) -> dict[str, Any]:
    """The arguments of the class, by the configuration."""
    options: dict[str, Any] = {"lr": config.lr}
    if record.betas is not None:
        options["betas"] = config.betas
    if record.momentum is not None:
        options["momentum"] = _momentum(record, config)
    if record.eps is not None:
        options["eps"] = record.eps if config.eps is None else config.eps
    if record.class_name in ("AdamW", "Adam", "SGD"):
        options["fused"] = True
    if record.class_name == "Adafactor":
        options["eps"] = (options["eps"], _ABSOLUTE_RATES)
    if record.class_name == "Lamb":
        # The decay is part of the update that the trust ratio scales, as in the paper.
        options["weight_decouple"] = False
    return options


def _momentum(record: OptimizerRecord, config: OptimizerConfig) -> float | None:
    return record.momentum if config.momentum is None else config.momentum


def _class_of(record: OptimizerRecord) -> type[Any]:
    """The class of a library.

    Raises:
        ConfigError: this PyTorch is older than the class, or its package is not installed.
    """
    if torch.__version__ < record.since:  # compared as versions
        raise ConfigError(f"optimizer {record.class_name} needs PyTorch {record.since} or newer")
    try:
        whole: type[Any] = getattr(import_module(record.module), record.class_name)
    except ImportError as error:
        raise ConfigError(
            f"optimizer {record.class_name} needs the package {record.package}: {error}"
        ) from error
    return _plain(whole, averages=record.averages)


def _plain(whole: type[Any], *, averages: bool = False) -> type[Any]:
    """The class, with names for its state and without the import of PyTorch's compiler.

    PyTorch wraps these methods to keep its compiler out of them, and the first call of a wrapper
    imports the whole compiler: 800 modules, half of a trainer's start. The methods themselves are
    unchanged, so the results are the same bit for bit.
    """
    plain = {name: unwrap(getattr(whole, name)) for name in ("add_param_group", "zero_grad")}
    # Of PyTorch's: bitsandbytes' own hides parts of the state, for FSDP.
    plain["state_dict"] = unwrap(torch.optim.Optimizer.state_dict)
    plain["load_state_dict"] = unwrap(whole.load_state_dict)
    plain["step"] = torch.no_grad()(unwrap(whole.step))
    made = type(whole.__name__, (whole,), plain)
    if averages:
        made = with_exact_averages(made)
    return type(whole.__name__, (NamedState, made), {})
