"""Which of the verified checkpoints that a start left behind are kept, and for how long.

A start from an earlier step or from scratch supersedes all later checkpoints. The newest of them
and the best one stay until the new attempts have a verified checkpoint at their step or beyond, so
that nothing that was trained is lost before it was trained again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainer_runtime.core.protocol.best_metric import badness
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.lines import number


def kept_superseded(
    scores: Mapping[int, float | None], is_whole: Callable[[int], bool] = lambda _step: True
) -> set[int]:
    """Of superseded checkpoints, by step with their `score`, the newest and the best whole ones."""
    newest = sorted(scores, reverse=True)
    best = sorted((found, -step) for step, found in scores.items() if found is not None)
    return {*_first(newest, is_whole), *_first((-step for _, step in best), is_whole)}


def score(metric: str, metrics: Mapping[str, object]) -> float | None:
    """What is least for the best checkpoint; None where the metric was not measured, or is NaN."""
    value = number(metrics.get(metric))
    return None if value is None or math.isnan(value) else badness(metric, value)


def kept_until(steps: Sequence[int]) -> str:
    """In words: which are kept and until when."""
    named = ", ".join(str(step) for step in steps)
    return (
        f"{named}; kept until the new attempt has a verified checkpoint at that step or a later "
        f"one. {option('--from', 'STEP')} returns to one."
    )


def _first(steps: Iterable[int], is_whole: Callable[[int], bool]) -> list[int]:
    found = next((step for step in steps if is_whole(step)), None)
    return [] if found is None else [found]
