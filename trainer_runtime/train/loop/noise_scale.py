"""The gradient noise scale: up to which batch more tokens a step are worth their cost.

The simple noise scale of McCandlish et al. 2018 (arXiv 1812.06162), tr(Σ) / |G|², estimated as in
its appendix A.1: from the norms of the gradient over a micro-batch and over the whole batch, which
accumulation has both. Numerator and denominator are averaged over time, each by itself, since each
is unbiased and their quotient is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.checkpoints.checkpoint_store import STATE

# The extra norm is a pass over all gradients: a tenth of what the norm of every step takes.
EVERY = 10
# Of the averages, per measurement; the first ones alone are mostly noise.
_KEPT, _FEWEST = 0.9, 5
# Of its averages among a checkpoint's metrics.
_STATE = f"{STATE}noise_scale/"


@dataclass(frozen=True, slots=True)
class Estimate:
    """`signal`: |G|², `noise`: tr(Σ) in tokens; either may be below 0 in a single step."""

    signal: float
    noise: float

    @classmethod
    def of(cls, small: float, norm_small: float, big: float, norm_big: float) -> Estimate:
        """Of the norms of two gradients, over batches of `small` and `big` tokens."""
        of_small, of_big = norm_small**2, norm_big**2
        return cls(
            signal=(big * of_big - small * of_small) / (big - small),
            noise=(of_small - of_big) / (1 / small - 1 / big),
        )


class NoiseScale:
    """Measures every tenth step that has several micro-batches. Its averages are kept with each
    checkpoint, so that they follow from the steps that led to the weights."""

    def __init__(self, curriculum: Curriculum, *, is_measured: bool = True) -> None:
        """`is_measured`: whether the gradients are whole and unscaled after each micro-batch."""
        self._curriculum, self._is_measured = curriculum, is_measured
        self._signal = self._noise = 0.0
        self._count = 0

    def begin(self, metrics: Mapping[str, float]) -> None:
        """Takes up the averages that a checkpoint's metrics record, if they do."""
        self._signal, self._noise, count = (
            metrics.get(_STATE + name, 0.0) for name in ("signal", "noise", "count")
        )
        self._count = int(count)

    @property
    def checkpoint_metrics(self) -> dict[str, float]:
        """What a checkpoint of now records beside its own metrics."""
        if not self._count:
            return {}
        values = {"signal": self._signal, "noise": self._noise, "count": float(self._count)}
        return {_STATE + name: value for name, value in values.items()}

    def is_due(self, step: int) -> bool:
        """Whether the norm after the step's first micro-batch is wanted."""
        due = self._is_measured and step % EVERY == 0
        return due and self._curriculum.shape(step).accumulation > 1

    def take(self, step: int, micro_norm: float | None, norm: float | None) -> dict[str, float]:
        """`noise_scale`, in tokens, once enough was measured.

        `micro_norm`: of what the step's first micro-batch has added to its gradient, whose norm is
        `norm`.
        """
        if micro_norm is None or norm is None or not math.isfinite(micro_norm + norm):
            return {}
        shape = self._curriculum.shape(step)
        small, big = shape.micro_batch * shape.seq_len, self._curriculum.tokens(step)
        estimate = Estimate.of(small, micro_norm * shape.accumulation, big, norm)
        self._signal = _KEPT * self._signal + (1 - _KEPT) * estimate.signal
        self._noise = _KEPT * self._noise + (1 - _KEPT) * estimate.noise
        self._count += 1
        if self._count < _FEWEST or self._signal <= 0 or self._noise <= 0:
            return {}
        return {"noise_scale": self._noise / self._signal}
