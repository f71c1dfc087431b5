"""The index of a run's checkpoints: what stands, what it is worth, what a resume would take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.protocol.best_metric import badness
from trainer_runtime.core.protocol.lineage import is_live
from trainer_runtime.core.protocol.lines import number
from trainer_runtime.core.protocol.progress import Progress, SavedCheckpoint


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One checkpoint. `verified`: True read back and whole, False damaged, None not yet checked."""

    step: int
    attempt: int
    time: float
    path: str
    size_bytes: int
    metrics: Mapping[str, Any]
    tags: tuple[str, ...]
    verified: bool | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "attempt": self.attempt,
            "time": self.time,
            "path": self.path,
            "size_bytes": self.size_bytes,
            "metrics": dict(self.metrics),
            "tags": list(self.tags),
            "verified": self.verified,
        }


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """Entries by step, rising. `skipped`: those that a resume passes over, with the reason."""

    entries: tuple[IndexEntry, ...]
    skipped: tuple[tuple[int, str], ...]
    resume_from: int | None
    best: int | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "checkpoints": [entry.to_dict() for entry in self.entries],
            "skipped": [{"step": step, "reason": reason} for step, reason in self.skipped],
            "resume_from": self.resume_from,
        }


def build_index(attempts: Sequence[Progress], metric: str) -> CheckpointIndex:
    """The index of what `attempts` (in order) saved and no later attempt superseded or pruned.

    `metric` is the one by which the best is chosen (`core/protocol/best_metric.py`).
    """
    saved, skipped = _standing(attempts)
    usable = [item for item in saved.values() if item.verified]
    best = _best_step(usable, metric)
    latest = max((item.step for item in usable), default=None)
    entries = tuple(_entry(saved[step], latest, best) for step in sorted(saved))
    passed_over = tuple(
        (step, reason) for step, reason in sorted(skipped.items()) if step > (latest or 0)
    )
    return CheckpointIndex(entries, passed_over, latest, best)


def _standing(attempts: Sequence[Progress]) -> tuple[dict[int, SavedCheckpoint], dict[int, str]]:
    started_at = {
        progress.attempt: progress.started_at_step
        for progress in attempts
        if progress.started_at_step is not None
    }
    saved: dict[int, SavedCheckpoint] = {}
    skipped: dict[int, str] = {}
    for progress in attempts:
        for step in progress.pruned:
            saved.pop(step, None)
        for step, reason in progress.skipped.items():
            skipped[step] = reason
            if step in saved:
                saved[step] = replace(saved[step], verified=False, reason=reason)
        for item in progress.checkpoints.values():
            if is_live(item.attempt, item.step, started_at) or item.step in progress.skipped:
                saved[item.step] = item
                if item.verified:
                    skipped.pop(item.step, None)
    return saved, skipped


def _best_step(usable: Sequence[SavedCheckpoint], metric: str) -> int | None:
    scored = [
        (badness(metric, value), item.step)
        for item in usable
        if (value := number(item.metrics.get(metric))) is not None and not math.isnan(value)
    ]
    return min(scored)[1] if scored else None


def _entry(saved: SavedCheckpoint, latest: int | None, best: int | None) -> IndexEntry:
    tags = [tag for tag, step in (("latest", latest), ("best", best)) if step == saved.step]
    return IndexEntry(
        step=saved.step,
        attempt=saved.attempt,
        time=saved.time,
        path=saved.path,
        size_bytes=saved.size_bytes,
        metrics=saved.metrics,
        tags=tuple(tags),
        verified=saved.verified,
    )
