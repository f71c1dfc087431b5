"""A series in few numbers: summary, and bucket means with their lows and highs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainer_runtime.core.protocol import named
from trainmaster.answers import MetricSeries, Number


def summarize(points: Sequence[tuple[int, float]], most: int | None) -> MetricSeries:
    """`points` (x, value), rising, in at most `most` values; all of them for None.

    A bucket of several is told by its mean, low and high and its last x, since means alone hide
    spikes; minimum and maximum are taken over what is finite.
    """
    finite = [value for _, value in points if math.isfinite(value)]
    whole = MetricSeries(
        n=len(points),
        first=shown(points[0][1]) if points else None,
        last=shown(points[-1][1]) if points else None,
        min=min(finite, default=None),
        max=max(finite, default=None),
        nonfinite=len(points) - len(finite) or None,
        steps=[x for x, _ in points],
        values=[shown(value) for _, value in points],
    )
    if most is None or len(points) <= most:
        return whole
    buckets = [points[len(points) * i // most : len(points) * (i + 1) // most] for i in range(most)]
    return whole.model_copy(
        update={
            "steps": [bucket[-1][0] for bucket in buckets],
            "values": [_rounded(_mean(bucket)) for bucket in buckets],
            "lows": [_rounded(min(_finite(bucket))) for bucket in buckets],
            "highs": [_rounded(max(_finite(bucket))) for bucket in buckets],
        }
    )


def shown(value: float) -> Number:
    """The value as JSON can hold it."""
    return value if math.isfinite(value) else named(value)  # type: ignore[return-value]


def _mean(bucket: Sequence[tuple[int, float]]) -> float:
    values = _finite(bucket)
    return sum(values) / len(values)


def _finite(bucket: Sequence[tuple[int, float]]) -> list[float]:
    """The finite values, or where there are none, the last one."""
    return [value for _, value in bucket if math.isfinite(value)] or [bucket[-1][1]]


def _rounded(value: float) -> Number:
    return shown(float(f"{value:.6g}"))
