"""Where a loss curve leads: a power law above an irreducible loss, fitted to it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FEWEST_POINTS = 16
# The first steps of a training follow another law.
_LEFT_OUT = 0.1
_EXPONENTS = tuple(n / 20 for n in range(1, 31))


@dataclass(frozen=True, slots=True)
class LossForecast:
    """loss = `irreducible` + `scale` * step ** -`exponent`
    (Hestness et al. 2017, arXiv 1712.00409);
    `error`: the standard deviation of what was measured around it."""

    irreducible: float
    scale: float
    exponent: float
    error: float

    def at(self, step: float) -> float:
        return float(self.irreducible + self.scale * step**-self.exponent)

    def step_of(self, loss: float) -> float | None:
        """The first step with this loss; None where the curve never gets so low."""
        if loss <= self.irreducible:
            return None
        return float(math.exp(math.log(self.scale / (loss - self.irreducible)) / self.exponent))


def loss_forecast(points: Sequence[tuple[float, float]]) -> LossForecast | None:
    """The best fit to (step, loss), steps rising; None where there are too few, or the loss doesn't
    fall."""
    last = points[-1][0] if points else 0.0
    kept = [(x, y) for x, y in points if x > max(0.0, _LEFT_OUT * last) and math.isfinite(y)]
    if len(kept) < _FEWEST_POINTS:
        return None
    fits = [fit for exponent in _EXPONENTS if (fit := _fit(kept, exponent)) is not None]
    return min(fits, key=lambda fit: fit.error, default=None)


def _fit(points: Sequence[tuple[float, float]], exponent: float) -> LossForecast | None:
    """Least squares with this exponent; None where the loss doesn't fall, or falls below zero."""
    xs, ys = [x**-exponent for x, _ in points], [y for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread <= 0:
        return None
    scale = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    irreducible = mean_y - scale * mean_x
    if scale <= 0 or irreducible < 0:
        return None
    squares = ((y - irreducible - scale * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return LossForecast(irreducible, scale, exponent, math.sqrt(sum(squares) / len(xs)))
