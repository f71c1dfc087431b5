"""Ends a training whose loss or gradient is not finite, before the weights are updated.

On a CPU the check reads the values before the optimizer steps. On a GPU reading them would stall
the pipeline: there the fused optimizer itself skips the step (`found_inf`, the field that
torch's GradScaler uses), and the values are read one step later, or before any save.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class NonFiniteError(Exception):
    """A loss or gradient norm that is NaN or infinite; no step was taken with it."""

    def __init__(self, code: str, step: int, values: Mapping[str, float]) -> None:
        self.code = code
        self.step = step
        self.values = dict(values)
        described = ", ".join(f"{key} {value}" for key, value in values.items())
        super().__init__(f"step {step}: {described}; ended before the weights were changed")


def check(step: int, loss: float, grad_norm: float | None = None) -> None:
    """Raises NonFiniteError: the loss is (code nan_loss), or else the gradient norm (nan_grad).

    `grad_norm` None leaves it out: with fp16 an overflow only makes the scaler skip the step.
    """
    if not math.isfinite(loss):
        values = {"loss": loss} if grad_norm is None else {"loss": loss, "grad_norm": grad_norm}
        raise NonFiniteError("nan_loss", step, values)
    if grad_norm is not None and not math.isfinite(grad_norm):
        raise NonFiniteError("nan_grad", step, {"loss": loss, "grad_norm": grad_norm})


def skip_if_non_finite(optimizer: torch.optim.Optimizer, loss: Tensor, grad_norm: Tensor) -> None:
    """Makes the coming step of a fused optimizer do nothing if either value is not finite.

    Waits for nothing: the decision is taken on the device.
    """
    finite = torch.isfinite(loss) & torch.isfinite(grad_norm)
    optimizer.found_inf = (~finite).to(torch.float32)  # type: ignore[attr-defined]
