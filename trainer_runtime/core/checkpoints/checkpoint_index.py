"""The index of a run's checkpoints: what stands, what it is worth, what a resume would take.

The verified checkpoints that a start left behind stay until the new attempts have caught up with
them (`superseded`): a resume may return to them by their step.

A start from an earlier step or from scratch supersedes all later checkpoints. The newest of them
and the best one stay until the new attempts have a verified checkpoint at their step or beyond, so
that nothing that was trained is lost before it was trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.checkpoints.kept_checkpoints import kept_superseded, score
from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.lineage import lineage_of
from trainer_runtime.core.protocol.progress import Progress, SavedCheckpoint
from trainer_runtime.core.protocol.text import code_word


@dataclass(frozen=True, slots=True)
class IndexEntry(JsonRecord):
    """One checkpoint. `verified`: True read back and whole, False damaged, None not yet checked."""

    step: int
    attempt: int
    time: float
    path: str
    size_bytes: int
    metrics: Mapping[str, Any]
    tags: tuple[str, ...]
    verified: bool | None


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """Entries by step, rising. `skipped`: those that a resume passes over, with the reason;
    `superseded`: the verified ones that a later attempt left behind, and that still stand."""

    entries: tuple[IndexEntry, ...]
    skipped: tuple[tuple[int, str], ...]
    resume_from: int | None
    best: int | None
    superseded: tuple[IndexEntry, ...] = ()
    metric: str = "val_loss"

    @property
    def standing(self) -> tuple[IndexEntry, ...]:
        """All entries, superseded ones too."""
        return (*self.entries, *self.superseded)

    def kept_behind(self, step: int) -> list[int]:
        """The steps that a start from `step` leaves behind and keeps: see `kept_superseded`."""
        left = [entry for entry in self.standing if entry.verified and entry.step > step]
        return self._kept(left)

    @property
    def kept_superseded(self) -> list[int]:
        """Of the superseded ones, those that stay until a newer attempt has caught up."""
        return self._kept(self.superseded)

    def _kept(self, left: Iterable[IndexEntry]) -> list[int]:
        return sorted(kept_superseded({e.step: score(self.metric, e.metrics) for e in left}))

    def to_dict(self) -> dict[str, Any]:
        kept = self.kept_superseded
        return {
            "checkpoints": [entry.to_dict() for entry in self.entries],
            "skipped": [{"step": step, "reason": reason} for step, reason in self.skipped],
            "resume_from": self.resume_from,
            "superseded": [e.to_dict() for e in self.superseded if e.step in kept],
        }


def build_index(attempts: Sequence[Progress], metric: str) -> CheckpointIndex:
    """The index of what `attempts` (in order) saved and no later attempt superseded or pruned.

    `metric` is the one by which the best is chosen (`core/protocol/best_metric.py`).
    """
    saved, left, skipped = _standing(attempts)
    usable = [item for item in saved.values() if item.verified]
    best = _best_step(usable, metric)
    latest = max((item.step for item in usable), default=None)
    entries = tuple(_entry(saved[step], latest, best) for step in sorted(saved))
    passed_over = tuple(
        (step, reason) for step, reason in sorted(skipped.items()) if step > (latest or 0)
    )
    superseded = tuple(_entry(left[step], None, None) for step in sorted(left))
    return CheckpointIndex(entries, passed_over, latest, best, superseded, metric)


def _standing(
    attempts: Sequence[Progress],
) -> tuple[dict[int, SavedCheckpoint], dict[int, SavedCheckpoint], dict[int, str]]:
    """By step: the run's checkpoints, the superseded ones that stand, and why one is skipped."""
    lineage = lineage_of(attempts)
    saved: dict[int, SavedCheckpoint] = {}
    left: dict[int, SavedCheckpoint] = {}
    skipped: dict[int, str] = {}
    for progress in attempts:
        reached = progress.verified_step or 0
        left = {step: item for step, item in left.items() if step > reached}
        for step in progress.pruned:
            saved.pop(step, None)
            left.pop(step, None)
        for step, reason in progress.skipped.items():
            skipped[step] = reason
            left.pop(step, None)
            if step in saved:
                saved[step] = replace(saved[step], verified=False, reason=reason)
        for item in progress.checkpoints.values():
            if lineage.is_live(item.attempt, item.step) or item.step in progress.skipped:
                saved[item.step] = item
                left.pop(item.step, None)
                if item.verified:
                    skipped.pop(item.step, None)
            elif item.verified:
                left[item.step] = item
                saved.pop(item.step, None)  # one folder a step
    return saved, left, skipped


def _best_step(usable: Sequence[SavedCheckpoint], metric: str) -> int | None:
    scored = [
        (found, item.step) for item in usable if (found := score(metric, item.metrics)) is not None
    ]
    return min(scored)[1] if scored else None


def _entry(saved: SavedCheckpoint, latest: int | None, best: int | None) -> IndexEntry:
    tags = [tag for tag, step in (("latest", latest), ("best", best)) if step == saved.step]
    tags += [] if saved.phase is None else [code_word(saved.phase)]
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


def kept_until(steps: Sequence[int]) -> str:
    """In words: which are kept and until when."""
    named = ", ".join(str(step) for step in steps)
    return (
        f"{named}; kept until the new attempt has a verified checkpoint at that step or a later "
        f"one. {option('--from', 'STEP')} returns to one."
    )
