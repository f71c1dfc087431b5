"""Tensors that have shapes and no data, computed with as the training's device would.

They are PyTorch's fake ones of the CPU, so that no GPU is needed. Where the training computes on
GPUs, kernels of theirs take the place of what the CPU composes of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from trainer_runtime.core.config import RunConfig
from trainer_runtime.train.attempt.device import DTYPES


@contextmanager
def tensors_without_data(config: RunConfig) -> Iterator[None]:
    """Within it no tensor has data; each number that is asked for is 1, each condition false."""
    with FakeTensorMode(), _Kernels(is_cuda=config.compute.device == "cuda"):
        yield


def autocast(precision: str) -> torch.autocast:
    """The context of forward passes in the training's precision."""
    half = DTYPES[precision] if precision != "fp32" else torch.bfloat16
    return torch.autocast("cpu", dtype=half, enabled=precision != "fp32")


class _Kernels(TorchFunctionMode):
    """Answers for values, and computes by the kernels of the training's device."""

    def __init__(self, *, is_cuda: bool) -> None:
        super().__init__()
        self._instead: Mapping[Any, Callable[..., Any]] = {
            Tensor.item: lambda tensor: 1.0 if tensor.is_floating_point() else 1,
            Tensor.__bool__: lambda _: False,
            torch.allclose: lambda *_, **__: True,
            **(_OF_CUDA if is_cuda else {}),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._instead.get(func, func)(*args, **(kwargs or {}))


def _attention(*tensors: Any, dropout_p: float = 0.0, **options: Any) -> Tensor:
    """Fused kernels draw the dropout in passing, which the CPU has no kernel for."""
    attend: Callable[..., Tensor] = functional.scaled_dot_product_attention
    return attend(*tensors, **options)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Keeps a mask of bytes, the CPU one of the input's type."""
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def _layer_norm(x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Autocast has GPUs compute it in fp32."""
    is_half = torch.is_autocast_enabled("cpu") and x.dtype != torch.float32
    return functional.layer_norm(x.float() if is_half else x, *args, **options)


def _rms_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    apply: Callable[..., Tensor] = _FusedNorm.apply
    return apply(x, weight, len(normalized_shape))


class _FusedNorm(torch.autograd.Function):
    """The tensors of one kernel, as PyTorch has since 2.9: it keeps its input and a number of each
    row."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor | None, dimensions: int) -> Tensor:
        scale = x.new_empty(x.shape[: x.dim() - dimensions], dtype=torch.float32)
        context.save_for_backward(x, scale, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, _, weight = context.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None


_OF_CUDA: Mapping[Any, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: _attention,
    functional.dropout: _dropout,
    functional.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
}
