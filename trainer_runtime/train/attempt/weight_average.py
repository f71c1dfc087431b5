"""An exponential moving average of the weights, kept beside those that are trained.

Polyak & Juditsky 1992; the decay of the first steps as in TensorFlow's ExponentialMovingAverage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.attempt.parameter_groups import trained

# Its name, and its file in a checkpoint.
AVERAGE = "ema"
AVERAGES = f"{AVERAGE}.safetensors"


class WeightAverage:
    """The average of a model's trained weights by their names, in fp32."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """`begin` is called once the weights are those that the attempt begins with."""
        self._decay = decay
        self._weights = dict(trained(model))
        self.tensors = {
            name: torch.zeros_like(weight, dtype=torch.float32, requires_grad=False)
            for name, weight in self._weights.items()
        }

    @torch.no_grad()
    def begin(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Takes up a saved average; None: begins with the present weights.

        Raises:
            ConfigError: it is of other weights.
        """
        if tensors is None:
            tensors = self._weights
        if differing := sorted(self.tensors.keys() ^ tensors.keys()):
            raise ConfigError(f"the saved average is of another model: {', '.join(differing[:3])}")
        for name, average in self.tensors.items():
            if average.shape != tensors[name].shape:
                raise ConfigError(f"the saved average is of another model: the shape of {name}")
            average.copy_(tensors[name])

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after `step` steps; each of the first ones counts for more."""
        decay = min(self._decay, (1 + step) / (10 + step))
        weights = [weight.detach().float() for weight in self._weights.values()]
        torch._foreach_lerp_(list(self.tensors.values()), weights, 1 - decay)

    @contextlib.contextmanager
    def in_model(self) -> Iterator[None]:
        """For the time in which the model has the averages, and gets its own weights back."""
        kept = [weight.detach().clone() for weight in self._weights.values()]
        self._give(list(self.tensors.values()))
        try:
            yield
        finally:
            self._give(kept)

    @torch.no_grad()
    def _give(self, tensors: list[Tensor]) -> None:
        for weight, tensor in zip(self._weights.values(), tensors, strict=True):
            weight.copy_(tensor)
