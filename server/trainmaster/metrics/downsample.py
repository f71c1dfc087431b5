"""A series in few numbers: a summary, and bucket means with their lows and highs."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.figures import rounded
from trainer_runtime.core.protocol.lines import finite_or_named
from trainmaster.answers.base import Number
from trainmaster.answers.metrics import MetricSeries
from trainmaster.store.buckets import Bucket, Row, joined


def is_evaluation(key: str) -> bool:
    """Whether the metric comes of evaluations: few points, each of which counts by itself."""
    return key.startswith(("val_", "eval_")) or key == "train_loss_eval"


def summarised(
    first: Row | None, buckets: Sequence[Bucket], *, averaged: bool = True
) -> MetricSeries:
    """The series that consists of these buckets and begins with the point `first`.

    `averaged`: a bucket's value is its mean; else that of its last point.
    """
    if first is None or not buckets:
        return MetricSeries(n=0, steps=[], values=[])
    whole = joined(buckets)
    series = MetricSeries(
        n=whole.n,
        first=as_number(first[2]),
        last=as_number(whole.last),
        min=whole.low,
        min_step=whole.low_x,
        max=whole.high,
        max_step=whole.high_x,
        nonfinite=whole.n - whole.finite or None,
        steps=[bucket.last_x for bucket in buckets],
        values=[as_number(bucket.last) for bucket in buckets],
    )
    if whole.n == len(buckets) or not averaged:
        return series
    return series.model_copy(
        update={
            "values": [_rounded(bucket.mean) for bucket in buckets],
            "lows": [_rounded(_or_last(bucket.low, bucket)) for bucket in buckets],
            "highs": [_rounded(_or_last(bucket.high, bucket)) for bucket in buckets],
        }
    )


def as_number(value: float) -> Number:
    """The value as JSON can hold it: non-finite values by name."""
    return finite_or_named(value)  # type: ignore[no-any-return]


def _or_last(extreme: float | None, bucket: Bucket) -> float:
    """The extreme; the last value where none is finite."""
    return bucket.last if extreme is None else extreme


def _rounded(value: float) -> Number:
    return as_number(rounded(value))
