"""The phases of a curriculum, as the resolved configuration has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import JsonRecord


@dataclass(frozen=True, slots=True)
class PhaseRate(JsonRecord):
    """A phase's own learning rate, in shares of `optimizer.lr`: by `kind` from `start` to `end`.

    `start` None: where the phase before ended. Over the first `warmup_steps` it rises or falls
    linearly from there to `start`.
    """

    kind: str = "linear"
    start: float | None = field(default=None, metadata={"key": "from"})
    end: float = field(default=0.0, metadata={"key": "to"})
    warmup_steps: int = 0


@dataclass(frozen=True, slots=True)
class Success(JsonRecord):
    """What a phase must have reached: `metric` below `below`, and above its value at the phase's
    start by `not_worse_than_start_pct` percent as a maximum."""

    metric: str = "val_loss"
    below: float | None = None
    not_worse_than_start_pct: float | None = None

    def limit(self, at_start: float | None) -> float | None:
        """The most that the metric may be; None where nothing limits it."""
        limits = [] if self.below is None else [self.below]
        if self.not_worse_than_start_pct is not None and at_start is not None:
            limits.append(at_start * (1 + self.not_worse_than_start_pct / 100))
        return min(limits, default=None)

    def is_met(self, value: float, at_start: float | None) -> bool:
        """Whether `value` at the phase's end suffices; NaN never does."""
        limit = self.limit(at_start)
        is_below = self.below is None or value < self.below
        return is_below and (limit is None or value <= limit)


@dataclass(frozen=True, slots=True)
class PhaseConfig(JsonRecord):
    """One phase: `steps` optimizer steps of `sequences` sequences over all ranks.

    `sources`: the mix, None: the sources' own weights. `lr` None: the run's schedule. `lr_scale`:
    what a roll-back has made of its rates; `tries`: how often it was extended or rolled back.
    """

    name: str
    steps: int
    sequences: int
    seq_len: int
    sources: Mapping[str, float] | None = None
    lr: PhaseRate | None = None
    lr_scale: float = 1.0
    success: Success | None = None
    on_miss: str = "warn"
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Ramp(JsonRecord):
    """The batch grows over the first `steps` steps: in equal stages from the share `start`."""

    start: float = field(metadata={"key": "from"})
    steps: int

    @property
    def stages(self) -> int:
        """Into how many parts the ramp's steps are divided, each of one batch."""
        return max(1, round((1 - self.start) / self.start))

    def share(self, stage: int) -> float:
        """The share of the full batch in a stage, counted from 0."""
        return min(1.0, self.start + (1 - self.start) * stage / self.stages)
