"""Muon for the matrices of blocks and AdamW for all other parameters, as one optimizer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from trainer_runtime.train.attempt.optimizer_state import NamedState


class Joined(NamedState, torch.optim.Optimizer):
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


def with_muon(muon: type[Any]) -> type[Any]:
    """PyTorch's Muon, which on a CPU iterates in fp32.

    PyTorch iterates in bf16: 17 times slower where a CPU has to emulate it. The matrices of a
    model that is trained on a CPU are small, so there fp32 costs little on any.
    """

    class Muon(muon):  # type: ignore[misc]
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            if any(p.device.type != "cpu" for group in self.param_groups for p in group["params"]):
                super().step(closure)
                return
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        _update(parameter, self.state[parameter], group)

    return Muon


def _update(matrix: nn.Parameter, state: dict[str, Any], group: dict[str, Any]) -> None:
    """As torch.optim.Muon does it (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon)."""
    assert matrix.grad is not None
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(matrix.grad)
    momentum: Tensor = state["momentum_buffer"]
    momentum.lerp_(matrix.grad, 1 - group["momentum"])
    update = matrix.grad.lerp(momentum, group["momentum"])
    update = orthogonalized(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
    matrix.mul_(1 - group["lr"] * group["weight_decay"])
    # As large as AdamW's: Liu et al. 2025 (arXiv:2502.16982), equation 4.
    matrix.add_(update, alpha=-0.2 * math.sqrt(max(matrix.shape)) * group["lr"])


def orthogonalized(
    matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """The matrix with all its singular values near 1, by Newton–Schulz iteration."""
    a, b, c = coefficients
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if is_tall else matrix
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
