"""A learning-rate range test: when its loss has diverged, and the rate that it suggests. Pure.

The rate rises from step to step until the loss diverges (Smith 2015, arXiv 1506.01186, 3.3).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trainer_runtime.core.protocol.figures import rounded

Item = TypeVar("Item")
# The loss has diverged at so many times its lowest mean: fastai's `lr_find` stops there.
DIVERGED = 4.0
_MEAN_OF = 5
# On both sides of a point: the share of all points that its mean and its slope are taken over.
_WINDOW_SHARE = 0.06
FEWEST_POINTS = 10
# Below this share of the first loss, a fall is as likely noise.
_LEAST_FALL = 0.01
RULE = (
    "the rate at which the loss falls fastest per decade, at most a tenth of the rate of its "
    "lowest mean (Smith 2015; fastai's lr_find)"
)


@dataclass(slots=True)
class RisingLoss:
    """Follows the losses of a range test, step by step."""

    _newest: deque[float] = field(default_factory=lambda: deque(maxlen=_MEAN_OF))
    _lowest: float = math.inf

    def has_diverged(self, loss: float) -> bool:
        """Whether the mean over the newest losses, with this one, is `DIVERGED` times its lowest,
        or not finite."""
        self._newest.append(loss)
        mean = sum(self._newest) / len(self._newest)
        if not math.isfinite(mean):
            return True
        self._lowest = min(self._lowest, mean)
        return mean > DIVERGED * self._lowest


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`steepest`: the rate of the fastest fall; `lowest`: that of the lowest mean loss."""

    lr: float
    steepest: float
    lowest: float


def suggest(rates: Sequence[float], losses: Sequence[float]) -> Suggestion | None:
    """The rate by `RULE`; None where the loss has not fallen, or of fewer than 10 points.

    `rates` rise, and so many `losses` were measured at them, none of which need be finite.
    """
    points = [
        (math.log10(rate), loss)
        for rate, loss in zip(rates, losses, strict=True)
        if rate > 0 and math.isfinite(loss)
    ]
    if len(points) < FEWEST_POINTS:
        return None
    means = means_of([loss for _, loss in points])
    lowest = min(range(len(points)), key=means.__getitem__)
    if means[0] - means[lowest] < _LEAST_FALL * abs(means[0]):
        return None
    slopes = [_slope(window) for window in _windows(points)]
    steepest = min(range(lowest + 1), key=slopes.__getitem__)
    at_steepest, at_lowest = points[steepest][0], points[lowest][0]
    return Suggestion(
        lr=rounded(10 ** min(at_steepest, at_lowest - 1), 2),
        steepest=rounded(10**at_steepest, 2),
        lowest=rounded(10**at_lowest, 2),
    )


def means_of(losses: Sequence[float]) -> list[float]:
    """Each loss as the mean over its neighbours on both sides, which lags behind none of them."""
    return [sum(window) / len(window) for window in _windows(losses)]


def _windows(items: Sequence[Item]) -> list[Sequence[Item]]:
    reach = max(2, round(_WINDOW_SHARE * len(items)))
    return [items[max(0, at - reach) : at + reach + 1] for at in range(len(items))]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line with the least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
