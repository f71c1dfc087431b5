"""Muon for the matrices of blocks and AdamW for all other parameters, as one optimizer."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_BF16 = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
_COEFFICIENTS, _ITERATIONS, _LEAST_NORM = (3.4445, -4.7750, 2.0315), 5, 1e-7


class Joined(torch.optim.Optimizer):
    """Several optimizers of one model's parameters: one list of groups, one state, one step."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self._parts = parts
        groups = [group for part in parts for group in part.param_groups]
        super().__init__(groups, {"lr": groups[-1]["lr"]})
        self._share()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for part in self._parts:
            part.step(closure)

    def _share(self) -> None:
        """What is loaded or set here is what the parts step by."""
        groups = iter(self.param_groups)
        for part in self._parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]


class Muon(torch.optim.Optimizer):
    """Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), as torch.optim.Muon computes
    it from PyTorch 2.9 on, with updates as large as AdamW's.

    It iterates in bf16; on a CPU that would have to emulate it, which takes 17 times as long, in
    fp32.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _update(parameter, self.state[parameter], group)


def _update(matrix: nn.Parameter, state: dict[str, Any], group: dict[str, Any]) -> None:
    assert matrix.grad is not None
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(matrix.grad)
    momentum: Tensor = state["momentum_buffer"]
    momentum.lerp_(matrix.grad, 1 - group["momentum"])
    update = orthogonalized(matrix.grad.lerp(momentum, group["momentum"]))
    matrix.mul_(1 - group["lr"] * group["weight_decay"])
    # As large as AdamW's: Liu et al. 2025 (arXiv:2502.16982), equation 4.
    matrix.add_(update, alpha=-0.2 * math.sqrt(max(matrix.shape)) * group["lr"])


@cache
def has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware, where this PyTorch says so."""
    return any(getattr(torch.cpu, name, bool)() for name in _BF16)


def orthogonalized(matrix: Tensor) -> Tensor:
    """The matrix with all its singular values near 1, by Newton–Schulz iteration."""
    a, b, c = _COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if is_tall else matrix
    if x.device.type != "cpu" or has_bf16():
        x = x.bfloat16()
    x = x / x.norm().clamp(min=_LEAST_NORM)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(matrix.dtype)
