"""The rule by which a training ends before its last step, and how far its evaluations are by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer_runtime.core.decoding import JsonRecord
from trainer_runtime.core.protocol.best_metric import badness

# Of its own values among a checkpoint's metrics.
STATE_PREFIX = "early_stopping/"


@dataclass(frozen=True, slots=True)
class EarlyStoppingConfig(JsonRecord):
    """It ends after `patience` evaluations in a row whose `metric` is not better than the best by
    more than `min_delta`."""

    patience: int
    metric: str = "val_loss"
    min_delta: float = 0.0

    @property
    def words(self) -> str:
        """When it ends."""
        return f"after {self.patience} evaluations without a better {self.metric}"


@dataclass(frozen=True, slots=True)
class Improvement:
    """What the evaluations of a run come to: the best value, of which step, and how many followed
    without a better one. Kept with each checkpoint, so that it follows from those alone that led to
    the weights."""

    best: float | None = None
    best_step: int = 0
    waited: int = 0

    def after(self, rule: EarlyStoppingConfig, step: int, value: float) -> Improvement:
        """With one more evaluation."""
        badness_now = badness(rule.metric, value)
        is_first = self.best is None and math.isfinite(value)
        if is_first or (
            self.best is not None and badness_now < badness(rule.metric, self.best) - rule.min_delta
        ):
            return Improvement(value, step)
        return replace(self, waited=self.waited + 1)

    @property
    def metrics(self) -> dict[str, float]:
        """As a checkpoint records it."""
        if self.best is None:
            return {}
        values = {"best": self.best, "best_step": self.best_step, "waited": self.waited}
        return {STATE_PREFIX + name: float(value) for name, value in values.items()}

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, float]) -> Improvement:
        """As it was when a checkpoint was saved."""
        best = metrics.get(f"{STATE_PREFIX}best")
        if best is None:
            return cls()
        step, waited = (
            int(metrics.get(STATE_PREFIX + name, 0)) for name in ("best_step", "waited")
        )
        return cls(best, step, waited)
