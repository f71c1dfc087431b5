"""Selects a part of a series, and its form: averages, rates, an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainer_runtime.core.protocol.duration import ACCEPTED, parse_duration
from trainmaster.errors.errors import UsageError
from trainmaster.store.buckets import Bucket, Row

Axis = Literal["step", "tokens", "time"]
Per = Literal["step", "second"]


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of a series and its form.

    `from_step` to `to_step`: both included. `since_s`: the last seconds of a run. `at`: only the
    newest point at or before a step. `ema`: the weight of the past in an exponential moving
    average, 0 to below 1. `rate`: change per step or second instead of values. `axis`: the common
    axis of several runs.
    """

    from_step: int | None = None
    to_step: int | None = None
    since_s: float | None = None
    at: int | None = None
    ema: float | None = None
    rate: Per | None = None
    axis: Axis | None = None

    @property
    def form(self) -> str | None:
        """How its values are computed, where they are not the metric's own."""
        average = None if self.ema is None else f"EMA {self.ema:g}"
        change = None if self.rate is None else f"change per {self.rate}"
        return " of ".join(filter(None, (change, average))) or None


EVERYTHING = Selection()


def selection(
    *,
    from_step: int | None = None,
    to_step: int | None = None,
    since: str | None = None,
    at: int | None = None,
    ema: float | None = None,
    rate: Per | None = None,
    axis: Axis | None = None,
) -> Selection:
    """A selection from its arguments; `since`: a duration such as `30m`, with or without a minus.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    if ema is not None and not 0 <= ema < 1:
        raise bad_argument(
            "ema", f"{ema} is not a valid weight of the past.", "Give 0 to below 1: 0.9."
        )
    if from_step is not None and to_step is not None and from_step > to_step:
        raise bad_argument("to", f"Step {to_step} is before step {from_step}.", "Swap them.")
    if at is not None and (from_step, to_step, since, ema, rate, axis) != (None,) * 6:
        raise bad_argument("at", "One point has no range, average or rate.", "Give `at` alone.")
    since_s = None if since is None else _seconds(since)
    return Selection(from_step, to_step, since_s, at, ema, rate, axis)


def bad_argument(field: str, message: str, fix: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", message, fix, field=field)


def moving_average(rows: Sequence[Row], weight: float) -> list[Row]:
    """The exponential moving average of the finite values so far, corrected for its initial bias.

    As in Adam (arXiv:1412.6980, algorithm 1): m_n = w m_(n-1) + (1 - w) v_n, over 1 - w^n.
    Values that are not finite are kept as they are, and left out of the average.
    """
    mean, share = 0.0, 1.0
    smoothed: list[Row] = []
    for x, t, value in rows:
        if math.isfinite(value):
            mean = weight * mean + (1 - weight) * value
            share *= weight
            smoothed.append((x, t, mean / (1 - share)))
        else:
            smoothed.append((x, t, value))
    return smoothed


def rates(first: Row, buckets: Sequence[Bucket], per: Per) -> list[Row]:
    """The change per step or second between the last points of neighbouring buckets.

    A bucket where neither x nor time advanced has none.
    """
    rows: list[Row] = []
    x, t, value = first
    for bucket in buckets:
        passed = _passed(x, t, bucket, per)
        if passed is not None and passed > 0:
            change = bucket.last - value
            rows.append((bucket.last_x, bucket.last_t, change / passed))
        x, t, value = bucket.last_x, bucket.last_t, bucket.last
    return rows


def _passed(x: int, t: float | None, bucket: Bucket, per: Per) -> float | None:
    if per == "step":
        return bucket.last_x - x
    return None if t is None or bucket.last_t is None else bucket.last_t - t


def _seconds(text: str) -> float:
    try:
        return parse_duration(text.removeprefix("-"))
    except ValueError as error:
        raise bad_argument("since", f"{error}.", f"Give {ACCEPTED}.") from None
