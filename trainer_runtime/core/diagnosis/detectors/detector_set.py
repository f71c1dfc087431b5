"""The detectors of a placement: the list of them, and the operations on all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.actor_loss import ActorLoss
from trainer_runtime.core.diagnosis.detectors.checkpoints import Checkpoints
from trainer_runtime.core.diagnosis.detectors.dead_units import DeadUnits
from trainer_runtime.core.diagnosis.detectors.detector import END, PHASE, REWIND, Code, Detector
from trainer_runtime.core.diagnosis.detectors.detector_context import REMEMBER, DetectorContext
from trainer_runtime.core.diagnosis.detectors.disk import Disk
from trainer_runtime.core.diagnosis.detectors.divergence import Divergence
from trainer_runtime.core.diagnosis.detectors.gpu import Gpu
from trainer_runtime.core.diagnosis.detectors.gradient import Gradient
from trainer_runtime.core.diagnosis.detectors.kl import KlBlowup
from trainer_runtime.core.diagnosis.detectors.margins import Margins
from trainer_runtime.core.diagnosis.detectors.memory import Memory
from trainer_runtime.core.diagnosis.detectors.missed_phase import MissedPhase
from trainer_runtime.core.diagnosis.detectors.missing_loss import MissingLoss
from trainer_runtime.core.diagnosis.detectors.nonfinite import NonFinite
from trainer_runtime.core.diagnosis.detectors.not_copied import NotCopied
from trainer_runtime.core.diagnosis.detectors.not_learning import NotLearning
from trainer_runtime.core.diagnosis.detectors.overfitting import Overfitting
from trainer_runtime.core.diagnosis.detectors.overoptimization import OverOptimization
from trainer_runtime.core.diagnosis.detectors.plateau import Plateau
from trainer_runtime.core.diagnosis.detectors.resumed import Resumed
from trainer_runtime.core.diagnosis.detectors.rewards import Rewards
from trainer_runtime.core.diagnosis.detectors.slow_rank import SlowRank
from trainer_runtime.core.diagnosis.detectors.spike import Spike
from trainer_runtime.core.diagnosis.detectors.stall import Stall
from trainer_runtime.core.diagnosis.detectors.state import dump_state, restore_state
from trainer_runtime.core.diagnosis.detectors.throughput import Throughput
from trainer_runtime.core.diagnosis.detectors.unmatched import Unmatched

# A detector whose turn matters says why in its module.
DETECTORS: tuple[type[Detector], ...] = (
    Stall,
    Checkpoints,
    ActorLoss,
    MissingLoss,
    NotLearning,
    NonFinite,
    Spike,
    Gradient,
    Divergence,
    Plateau,
    Overfitting,
    DeadUnits,
    MissedPhase,
    Resumed,
    Margins,
    OverOptimization,
    KlBlowup,
    Rewards,
    Throughput,
    SlowRank,
    Gpu,
    Memory,
    Disk,
    Unmatched,
    NotCopied,
)
CODES: Mapping[str, Code] = {
    code: declared for detector in DETECTORS for code, declared in detector.codes.items()
}
# Kinds of events from which the position of the run follows.
EVENTS = frozenset(
    {"attempt_starting", "started", "resumed", "checkpoint", "phase", "completed", "attempt_ended"}
)


Take = Callable[[DetectorContext, str, int, float], None]
Takes = Mapping[str, tuple[Take, ...]]


class DetectorSet:
    """A detector of each kind, with its state."""

    def __init__(self, *, judges_learning: bool = True) -> None:
        self._detectors = tuple(
            detector() for detector in DETECTORS if judges_learning or not detector.judges_learning
        )

    def hooks(self, hook: str) -> list[Callable[..., None]]:
        """A hook of `Detector`, of those that define it."""
        return [getattr(detector, hook) for detector in self._defining(hook)]

    def takes(self) -> tuple[Takes, Takes, Takes]:
        """By metric key what takes in its values, in order: any, finite ones, those that are an
        error too."""
        raw = self.by_name("raw", "reads_raw")
        finite = self.by_name("finite", "reads_finite")
        errors = self.by_name("point", "reads")
        return _joined(raw), _joined(raw, finite, REMEMBER), _joined(raw, finite, errors, REMEMBER)

    def by_name(self, hook: str, attribute: str) -> dict[str, list[Callable[..., None]]]:
        """A hook of those that define it, by each of the names in an attribute of theirs."""
        hooks: dict[str, list[Callable[..., None]]] = {}
        for detector in self._defining(hook):
            for name in getattr(detector, attribute):
                hooks.setdefault(name, []).append(getattr(detector, hook))
        return hooks

    def event(self, context: DetectorContext, kind: str, step: int, fields: Fields) -> None:
        """Follow the run's position, which all share, by an event of `EVENTS`."""
        if kind == "attempt_starting":
            attempt = fields.find_integer("attempt")
            if attempt is not None and attempt != context.ledger.attempt:
                self._begin(context, attempt, context.step)
            context.finished = True  # no step is expected during preparation
        elif kind == "started":
            self._begin(context, fields.integer("attempt", context.ledger.attempt), step)
            context.target_step = fields.find_integer("target_step")
        elif kind == "resumed":
            self._begin(context, context.ledger.attempt, step)
        elif kind == "checkpoint":
            action = fields.text("action", "saved")  # logs mention saves only
            context.checkpoint(action, step, fields.find_integer("size_bytes"))
        elif kind == "phase":
            self._begin_phase(context)
        else:
            context.finished = True
            self._close(context, END)

    def rewind(self, context: DetectorContext, step: int) -> None:
        """Steps of the same attempt went back to `step`, as in one log that contains a resume."""
        self._restart(context, step)
        self._close(context, REWIND)
        context.begin(context.ledger.attempt, step)

    def to_dict(self) -> dict[str, Any]:
        return {type(detector).__name__: dump_state(detector) for detector in self._detectors}

    def restore(self, data: Mapping[str, Any]) -> None:
        for detector in self._detectors:
            restore_state(detector, data.get(type(detector).__name__, {}))

    def _begin(self, context: DetectorContext, attempt: int, step: int) -> None:
        """Attempt `attempt` starts from `step`; 0 means from scratch."""
        self._restart(context, step)
        context.begin(attempt, step)

    def _begin_phase(self, context: DetectorContext) -> None:
        """The data mixture changes, so earlier losses are no longer comparable."""
        context.loss.restart()
        for detector in self._detectors:
            if detector.restarts_with_phase:
                detector.restart(context, 0)
        self._close(context, PHASE)

    def _restart(self, context: DetectorContext, step: int) -> None:
        for detector in self._detectors:
            detector.restart(context, step)

    def _close(self, context: DetectorContext, reason: str) -> None:
        for code, declared in CODES.items():
            if reason in declared.closed_by:
                context.ledger.close(code, context.step)

    def _defining(self, hook: str) -> list[Detector]:
        undefined = getattr(Detector, hook)
        return [item for item in self._detectors if getattr(type(item), hook) is not undefined]


def _joined(*hooks: Mapping[str, Sequence[Take]]) -> Takes:
    keys = {key for by_key in hooks for key in by_key}
    return {key: tuple(take for by_key in hooks for take in by_key.get(key, ())) for key in keys}
