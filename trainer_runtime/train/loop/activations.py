"""Hidden units that are dead, and how large activations are, seen on held-out tokens.

A unit of a feed-forward layer is dead if its pre-activation (of a gated one: its gate's) is above 0
for none of the tokens: ReLU² then passes neither values nor gradients, GELU nearly none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# Enough for a healthy unit to be seen at work, and little beside an evaluation.
MOST_TOKENS = 4096
_LAYER = "feed_forward"


@torch.no_grad()
def measure(model: nn.Module, batches: Iterable[Tensor]) -> dict[str, float]:
    """`dead_units`, the share of all layers' units; `dead_units_worst` of the worst layer, the one
    numbered `dead_units_layer`; `activation_rms`, the largest root mean square of what the hidden
    units of a layer give, and `activation_rms_layer`. Layers count from 0.

    Passes at most `MOST_TOKENS` tokens through the model as it is, compiled or not. Nothing for a
    model without such layers.
    """
    layers = [module for name, module in model.named_modules() if _is_feed_forward(name, module)]
    watched = [_Layer(layer) for layer in layers]
    tokens = 0
    try:
        for inputs in batches if watched else ():
            model(inputs)
            tokens += inputs.numel()
            if tokens >= MOST_TOKENS:
                break
    finally:
        for layer in watched:
            layer.release()
    if not tokens:
        return {}
    dead = [1.0 - layer.active.float().mean().item() for layer in watched]
    units = [layer.active.numel() for layer in watched]
    rms = [math.sqrt(layer.squares.item() / layer.values) for layer in watched]
    share = sum(of * n for of, n in zip(dead, units, strict=True)) / sum(units)
    values = {"dead_units": share, **_largest("dead_units", dead, "_worst")}
    return values | (_largest("activation_rms", rms) if all(map(math.isfinite, rms)) else {})


class _Layer:
    """What passes through one feed-forward layer, until it is released."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self.active = torch.zeros(0)
        self.squares = torch.zeros(())
        self.values = 0
        self._hooks = [
            layer.get_submodule("widen").register_forward_hook(self._widened),
            layer.get_submodule("to_residual").register_forward_pre_hook(self._activated),
        ]

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _widened(self, module: nn.Module, inputs: object, widened: Tensor) -> None:
        gate = widened.chunk(2, dim=-1)[0] if self._layer.is_gated else widened
        active = (gate > 0).flatten(0, -2).any(dim=0)
        self.active = active if not self.active.numel() else self.active | active

    def _activated(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        hidden = inputs[0].float()
        self.squares = self.squares.to(hidden.device) + hidden.square().sum()
        self.values += hidden.numel()


def _is_feed_forward(name: str, module: nn.Module) -> bool:
    has_parts = {"widen", "to_residual"} <= dict(module.named_children()).keys()
    return name.endswith(_LAYER) and has_parts and hasattr(module, "is_gated")


def _largest(name: str, by_layer: list[float], suffix: str = "") -> dict[str, float]:
    at = max(range(len(by_layer)), key=by_layer.__getitem__)
    return {f"{name}{suffix}": by_layer[at], f"{name}_layer": float(at)}
