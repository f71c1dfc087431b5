"""State that all detectors of a placement share: the run's position and recent values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.diagnosis.detectors.ledger import Ledger
from trainer_runtime.core.diagnosis.detectors.outlier import Outlier
from trainer_runtime.core.diagnosis.detectors.pace import Pace
from trainer_runtime.core.diagnosis.detectors.settings import Settings

_MAX_CHECKPOINTS = 256
# Before BLOOM-176B's first spike the norm rose 4 to 60 times; at 1.12 times, the loss's own ratio,
# llm.c's healthy norms (19,560 steps) would raise 26 alarms, at 2 times none.
_GRADIENT_RATIO = 3.0
_ANY_SCATTER = 1e9  # norms scatter by a quarter; the ratio alone prevents false alarms


def _gradient_rule() -> Outlier:
    return Outlier(ratio=_GRADIENT_RATIO, symmetric=_ANY_SCATTER)


@dataclass(slots=True)
class DetectorContext:
    """`of_step` holds the values of the newest step, `latest` the newest finite value of each key
    that causes and reports use, `machine` that of telemetry; `best_clock_mhz` is the highest GPU
    clock so far.

    `losses` and `grad_norms` are the newest points as (step, value); `notes` are the
    newest isolated outliers of the loss as (step, loss, factor); `loss` and `gradient` are the
    outlier rules on loss and norm, with their windows. `verified` are the steps of checkpoints that
    were verified and still exist, `checkpoint_gib` is the size of the newest. `is_reinforced`: the
    loss is a policy objective, not an error (see `detectors.py`). `worked_s` is the time spent in
    steps, without pauses; `after_pause`: an evaluation or a save came right before the current
    step. `t` is the newest point's time.
    """

    settings: Settings = field(default_factory=Settings, metadata={"derived": True})
    ledger: Ledger = field(default_factory=Ledger, metadata={"derived": True})
    step: int = 0
    first_step: int = 0
    steps_seen: int = 0
    t: float | None = None
    worked_s: float = 0.0
    after_pause: bool = False
    target_step: int | None = None
    finished: bool = False
    is_reinforced: bool = False
    of_step: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)
    machine: dict[str, float] = field(default_factory=dict)
    best_clock_mhz: float = 0.0
    losses: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=8))
    grad_norms: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=8))
    notes: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=16))
    pace: Pace = field(default_factory=Pace)
    loss: Outlier = field(default_factory=lambda: Outlier(least_rise=0.05))
    gradient: Outlier = field(default_factory=_gradient_rule)
    verified: list[int] = field(default_factory=list)
    saves: int = 0
    checkpoint_gib: float | None = None

    def begin(self, attempt: int, step: int) -> None:
        """Start a new attempt, or the same one again from `step`."""
        if self.ledger.attempt != attempt:
            self.ledger.close_all(self.step)
            self.ledger.attempt = attempt
        self.step = self.first_step = step
        self.steps_seen = 0
        self.t, self.worked_s, self.finished = None, 0.0, False
        self.latest = {}
        self.losses.clear()
        self.grad_norms.clear()
        self.verified = [saved for saved in self.verified if saved <= step]
        self.pace.restart()
        self.loss.restart()
        self.gradient.restart()

    @property
    def remaining_h(self) -> float | None:
        """Hours of work until the last step at the average pace; None where either is unknown."""
        target = self.target_step or self.settings.steps
        done = self.step - self.first_step
        if target is None or done <= 0 or self.worked_s <= 0:
            return None
        return max(0, target - self.step) * self.worked_s / done / 3600

    def checkpoint(self, action: str, step: int, size_bytes: Any = None) -> None:
        """Record `saved` (with its size), `verified`, `pruned` or `failed` of a checkpoint."""
        if isinstance(size_bytes, (int, float)) and size_bytes > 0:
            self.checkpoint_gib = size_bytes / 2**30
        self.saves += action == "saved"
        if action == "verified" and step not in self.verified:
            self.verified = [*self.verified, step][-_MAX_CHECKPOINTS:]
        elif action in ("pruned", "failed") and step in self.verified:
            self.verified.remove(step)

    def safe_step(self, before: int) -> int | None:
        """The step of the newest verified checkpoint before step `before`."""
        return max((step for step in self.verified if step < before), default=None)


def _keep_latest(context: DetectorContext, key: str, step: int, value: float) -> None:
    context.latest[key] = value


def _keep_norm(context: DetectorContext, key: str, step: int, value: float) -> None:
    context.grad_norms.append((step, value))


def _keep_loss(context: DetectorContext, key: str, step: int, value: float) -> None:
    if value != 0 or context.is_reinforced:
        context.losses.append((step, value))


# What is kept of a key for causes and reports, once the detectors had its value.
REMEMBER = {
    **dict.fromkeys(
        ("lr", "data_time_share", "comm_time_share", "mfu", "loss_scale"), (_keep_latest,)
    ),
    "grad_norm": (_keep_norm,),
    "loss": (_keep_loss,),
}
