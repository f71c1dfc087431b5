"""Which of our schedules logged learning rates have followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.config.lr_schedule import lr_factor
from trainer_runtime.train.foreign.records import Point

# Trainer's own default first: of those that fit alike the first is taken.
_KINDS = ("linear", "constant", "cosine")
_FEWEST_POINTS = 2
_MOST_POINTS = 24
_LONGEST_WARMUP_STEPS = 2000
# Of the highest rate; what a schedule of another shape soon exceeds.
_LARGEST_DIFFERENCE = 0.01


def followed_schedule(history: Sequence[Point], highest: float, steps: int) -> dict[str, Any]:
    """The spec fields of the schedule that the logged rates follow; empty if none fits.

    `highest`: the rate that the schedule's factors are of; `steps`: how many it was laid out for.
    """
    logged = [(step, values["lr"] / highest) for step, values in history if "lr" in values]
    if len(logged) < _FEWEST_POINTS:
        return {}
    peak = max(logged, key=lambda point: point[1])[0]
    points = logged[:: max(1, len(logged) // _MOST_POINTS)]
    differences = {
        (kind, warmup): _difference(points, kind, warmup, steps)
        for warmup in range(min(peak, steps, _LONGEST_WARMUP_STEPS) + 1)
        for kind in _KINDS
    }
    kind, warmup = min(differences, key=lambda candidate: round(differences[candidate], 9))
    if differences[kind, warmup] > _LARGEST_DIFFERENCE:
        return {}
    return {
        "schedule.kind": kind,
        "schedule.warmup_steps": warmup,
        "schedule.min_lr_ratio": 0.0,
    }


def _difference(points: Sequence[tuple[int, float]], kind: str, warmup: int, steps: int) -> float:
    """The largest one; a step's rate may have been logged with it or with the one after."""
    return min(
        max(abs(_factor(kind, step - late, steps, warmup) - share) for step, share in points)
        for late in (0, 1)
    )


def _factor(kind: str, step: int, steps: int, warmup: int) -> float:
    if step == 0:
        return 0.0 if warmup else 1.0
    return lr_factor(kind, step, steps, warmup, 0.0)
