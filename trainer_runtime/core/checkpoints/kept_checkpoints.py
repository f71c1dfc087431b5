"""Which checkpoints no pruning may take: of superseded ones, and what the run's supervisor pins.

The supervisor lists them in a file in the run's folder; every pruning reads that file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainer_runtime.core.protocol.best_metric import badness
from trainer_runtime.core.protocol.lines import number

PINNED_CHECKPOINTS = "held_checkpoints.json"


def pinned_document(steps: Collection[int]) -> dict[str, Any]:
    """What the file holds."""
    return {"steps": sorted(steps)}


def pinned_steps(root: Path) -> frozenset[int]:
    """The steps that the run in the folder `root` holds; none where no file says so."""
    try:
        return frozenset(
            decode_fields((root / PINNED_CHECKPOINTS).read_bytes(), PINNED_CHECKPOINTS).integers(
                "steps"
            )
        )
    except (OSError, DecodingError):
        return frozenset()


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


def _first(steps: Iterable[int], is_whole: Callable[[int], bool]) -> list[int]:
    found = next((step for step in steps if is_whole(step)), None)
    return [] if found is None else [found]
