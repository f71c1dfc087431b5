"""Which checkpoints go once a newer one is verified.

Superseded ones that are kept take the places of the oldest of the latest, so that no more stand on
the disk than were planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.checkpoints.kept_checkpoints import kept_superseded, score
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.best_metric import badness
from trainer_runtime.train.attempt.config import RunConfig


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint on the disk with the metrics that were measured at its own step."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Retention:
    """Kept are the latest N, the best N by `metric`, every K steps, and the borders of phases, by
    the name of the phase that ends there."""

    keep_latest: int
    keep_best: int
    keep_every_steps: int | None
    metric: str
    borders: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: RunConfig) -> Retention:
        policy = config.checkpoint
        borders = {phase.ends: phase.name for phase in Curriculum.of(config).phases if phase.name}
        return cls(
            policy.keep_latest,
            policy.keep_best,
            policy.keep_every_steps,
            policy.metric,
            borders,
        )

    def best(self, stored: Sequence[Stored]) -> list[int]:
        """The steps of the best ones, best first; of equals the newer."""
        rated = [entry for entry in stored if self.metric in entry.metrics]
        rated.sort(
            key=lambda entry: (badness(self.metric, entry.metrics[self.metric]), -entry.step)
        )
        return [entry.step for entry in rated[: self.keep_best]]

    def to_prune(
        self,
        stored: Sequence[Stored],
        last_verified: int,
        superseded: Collection[int],
        held: Collection[int] = (),
        is_whole: Callable[[int], bool] = lambda _step: True,
    ) -> list[int]:
        """The steps that go, oldest first; never the last verified one, nor one of `held`.

        `superseded` are steps of a lineage that the run has left. They go whatever they are, but
        for the newest and the best beyond `last_verified` that verify by `is_whole`.
        """
        current = [entry for entry in stored if entry.step not in superseded]
        beyond = [e for e in stored if e.step in superseded and e.step > last_verified]
        left = kept_superseded({e.step: score(self.metric, e.metrics) for e in beyond}, is_whole)
        latest = max(1, self.keep_latest - len(left))
        newest = sorted(entry.step for entry in current)[-latest:]
        kept = {last_verified, *newest, *self.best(current), *held, *left}
        kept.update(entry.step for entry in current if entry.step in self.borders)
        if self.keep_every_steps:
            kept.update(e.step for e in current if e.step % self.keep_every_steps == 0)
        return sorted(entry.step for entry in stored if entry.step not in kept)

    def tags(self, stored: Sequence[Stored], new: Stored) -> list[str]:
        """Why a new checkpoint is worth keeping, as its manifest says it."""
        tags = ["latest"]
        if new.step in self.best([*stored, new])[:1]:
            tags.append("best")
        if self.keep_every_steps and new.step % self.keep_every_steps == 0:
            tags.append("periodic")
        if new.step in self.borders:
            tags.append(f"phase:{self.borders[new.step]}")
        return tags
