"""`Detectors`: everything that watches a placement's series, behind one door."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors import (
    kl,
    margins,
    messages,
    overoptimization,
    rewards,
    throughput,
)
from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.event_handlers import HAPPENINGS
from trainer_runtime.core.diagnosis.detectors.ledger import Ledger, Sighting
from trainer_runtime.core.diagnosis.detectors.patches import patches_for
from trainer_runtime.core.diagnosis.detectors.settings import Settings
from trainer_runtime.core.diagnosis.detectors.state import described, restore
from trainer_runtime.core.diagnosis.detectors.watch import Watch
from trainer_runtime.core.diagnosis.remedies import ANNOUNCE_A_REWIND
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.lines import number

_FORMAT = 1
# Kept for causes and reports beside what detectors of their own look at.
_REMEMBERED = ("lr", "data_time_share", "comm_time_share", "mfu", "loss_scale")
# What is beyond counts as infinite: sums and squares of it would be.
_LARGEST = 1e30
_NOTED_EVERY = 32  # points
# What GRPO and its kin minimise begins at 0, may be negative, and tells nothing by its height
# (huggingface.co/docs/trl/grpo_trainer: the loss "starts at zero" and rises as the policy moves).
_REINFORCED = frozenset({"grpo", "rloo", "ppo"})

Handler = Callable[[str, int, float], None]


class Detectors:
    """Watches one placement, attempt by attempt; fed in the order in which things happened.

    Pure: time comes in with what is fed. Whoever feeds the same, box or operator's side, from the
    start or going on from `to_dict`, finds the same under the same ids. Memory is bounded: windows
    of 64 values, trends of 64 means, the newest 64 findings that are over.
    """

    def __init__(
        self, settings: Settings | None = None, *, placement: int = 1, attempt: int = 1
    ) -> None:
        """`placement` and `attempt` go into the findings' ids; 0 for both where it is a file."""
        self.settings = settings or Settings()
        self.placement = placement
        self._board = Board(self.settings, Ledger(attempt))
        self._watch = Watch()
        self._handlers: dict[str, Handler] = {
            "loss": self._loss,
            "grad_norm": self._grad_norm,
            "val_loss": self._val_loss,
        }
        self._handlers |= dict.fromkeys(throughput.KEYS, self._speed)
        self._handlers |= dict.fromkeys(margins.MARGINS, self._margin)
        self._handlers |= dict.fromkeys(margins.ACCURACIES, self._accuracy)
        self._handlers |= dict.fromkeys(overoptimization.ROW, self._pair)
        self._handlers |= dict.fromkeys(overoptimization.VAL_ACCURACIES, self._val_accuracy)
        self._handlers |= dict.fromkeys(kl.KEYS, self._kl)
        self._handlers |= dict.fromkeys(rewards.KEYS, self._reward)
        self._board.is_reinforced = self.settings.config.get("method") in _REINFORCED
        self._handlers |= {key: self._remember for key in _REMEMBERED if key != "mfu"}
        self._handlers["mfu"] = self._speed

    def point(self, key: str, step: int, t: float | None, value: float) -> None:
        """One metric of one step. `t`: Unix seconds, None where nobody knows.

        Keys are the metric keys of the design page; others change nothing. A `loss` whose
        step goes back opens the series anew, as after a resume. Feed one rank's points.
        """
        newest = self._board.step
        if step != newest and (step > newest or key == "loss"):
            self._step(step, t)
        handler = self._handlers.get(key)
        if handler is not None:
            handler(key, step, value)

    def sample(self, t: float, values: Mapping[str, object]) -> None:
        """What the machine told at `t`: telemetry keys, also per GPU (`gpu_util/0`)."""
        board = self._board
        finite = {}
        for key, raw in values.items():
            value = number(raw)
            if value is not None and -_LARGEST < value < _LARGEST:
                finite[key] = value
        board.machine = {key: finite[key] for key in _MACHINE if key in finite}
        self._watch.gpu.sample(board, t, finite)
        for memory in self._watch.memories:
            memory.sample(board, t, finite)
        if "disk_free_gib" in finite:
            self._watch.disk.sample(board, t, finite["disk_free_gib"])
        self._watch.stall.look(board, self._watch.pace, t)

    def event(
        self,
        kind: str,
        t: float | None = None,
        step: int | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """What trainer, journal or log told beside points; kinds that are not known do nothing.

        Kinds: `started resumed eval checkpoint phase warning decision completed` of the trainer,
        `attempt_starting attempt_ended` of the journal. `fields` are the event's others. Points of
        `metric` and `eval` events are fed by `point`.
        """
        happening = HAPPENINGS.get(kind)
        if happening is not None:
            at = self._board.step if step is None else step
            happening(self._board, self._watch, at, Fields(fields or {}, kind))
        if t is not None and kind in ("eval", "checkpoint") and (self._board.t or 0.0) < t:
            self._board.t = t

    def take(self, event: Event, attempt: int | None = None) -> None:
        """One event of `events.jsonl` or `supervisor.jsonl`, as `protocol.decode` gives it.

        `attempt`: the one whose file it stands in; a trainer's `started` does not tell.
        """
        kind, t, step = event.kind, event.t, event.step
        if kind == "sample":
            self.sample(t, event.values)
            return
        if kind in ("metric", "eval"):
            for key, raw in event.values.items():
                value = number(raw)
                if value is not None:
                    self.point(key, step or 0, t, value)
        if kind in HAPPENINGS:
            own = {} if attempt is None else {"attempt": attempt}
            self.event(kind, t, step, {**own, **event.document})

    def tick(self, now: float) -> list[Finding]:
        """Look at the clock, and tell what is open. `now`: Unix seconds."""
        self._watch.stall.look(self._board, self._watch.pace, now)
        return self.findings()

    def findings(self, *, closed: bool = False) -> list[Finding]:
        """What is wrong now, in order of onset; with `closed` also what was and is over."""
        return [self.described(found) for found in self.sightings(closed=closed)]

    def sightings(self, *, closed: bool = True) -> list[Sighting]:
        """The same with all figures, and where each ended."""
        return [found for found in self._board.ledger.all() if closed or found.closed_at is None]

    @property
    def wanted_checkpoints(self) -> frozenset[int]:
        """The steps of the checkpoints that a rewind for what is open would go back to, also where
        it isn't yet bad enough to propose one."""
        found = (
            self._board.safe_step(one.onset)
            for one in self._board.ledger.all()
            if one.closed_at is None and one.code in ANNOUNCE_A_REWIND
        )
        return frozenset(step for step in found if step is not None)

    @property
    def keys(self) -> Collection[str]:
        """The metric keys that anything looks at."""
        return self._handlers.keys()

    @property
    def notes(self) -> list[tuple[int, float, float]]:
        """The newest odd steps that stayed alone: (step, loss, factor). They are no findings."""
        return list(self._watch.spike.notes)

    def to_dict(self) -> dict[str, Any]:
        """All that a later process needs to go on, fit for JSON."""
        return {
            "format": _FORMAT,
            "placement": self.placement,
            "ledger": self._board.ledger.to_dict(),
            "board": described(self._board),
            "watch": described(self._watch),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], settings: Settings | None = None) -> Detectors:
        """The detectors that `to_dict` described. `settings` are the caller's to keep.

        Raises:
            ValueError: it was written by another format version.
        """
        if data.get("format") != _FORMAT:
            raise ValueError(f"detector state of format {data.get('format')!r} is not read here")
        detectors = cls(settings, placement=data["placement"])
        detectors._board.ledger = Ledger.from_dict(data["ledger"])
        restore(detectors._board, data["board"])
        restore(detectors._watch, data["watch"])
        return detectors

    def _step(self, step: int, t: float | None) -> None:
        board, watch = self._board, self._watch
        if step < board.step:
            watch.go_back(board, step)
        board.step = step
        board.steps_seen += 1
        board.finished = False
        watch.after_pause = watch.pace.paused
        if t is not None:
            board.worked_s += watch.pace.step(t)
            board.t = t
        else:
            watch.pace.paused = False
        watch.stall.alive(board, step)
        watch.checkpoints.point(board, step)

    def _loss(self, key: str, step: int, value: float) -> None:
        board, watch = self._board, self._watch
        if not -_LARGEST < value < _LARGEST:
            watch.nonfinite.seen(board, key, step, value)
            return
        if value == 0 and not board.is_reinforced:
            watch.nonfinite.zero(board, step)
            return
        if watch.nonfinite.lost:
            watch.nonfinite.finite(board, step)
        if board.is_reinforced:
            board.losses.append((step, value))
            return
        watch.spike.point(board, step, value)
        board.losses.append((step, value))
        watch.divergence.point(board, step, watch.spike.outlier.window)
        watch.plateau.point(board, step, value)
        if watch.divergence.points % _NOTED_EVERY == 0:
            watch.resumed.note(board, step, watch.spike.outlier.window)
        if watch.resumed.before:
            watch.resumed.point(board, step, value)

    def _grad_norm(self, key: str, step: int, value: float) -> None:
        board, watch = self._board, self._watch
        if not -_LARGEST < value < _LARGEST:
            watch.nonfinite.seen(board, key, step, value)
            return
        if watch.nonfinite.overflows:
            watch.nonfinite.finite_gradient(board, step)
        watch.gradient.point(board, step, value)
        board.grad_norms.append((step, value))
        watch.spike.gradient(board, step, value)

    def _val_loss(self, key: str, step: int, value: float) -> None:
        board, watch = self._board, self._watch
        watch.pace.pause(step, watch.stall.silent_s)
        watch.stall.alive(board, board.step)
        if not -_LARGEST < value < _LARGEST:
            watch.nonfinite.seen(board, key, step, value)
            return
        if board.is_reinforced:
            return
        window = watch.spike.outlier.window
        watch.overfitting.evaluation(board, step, value, window.median if len(window) else None)
        watch.plateau.evaluation(step, value)

    def _speed(self, key: str, step: int, value: float) -> None:
        if not -_LARGEST < value < _LARGEST:
            return
        if key == "mfu":
            self._board.latest[key] = value
        self._watch.throughput.point(self._board, key, step, value, self._watch.after_pause)

    def _remember(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._board.latest[key] = value

    def _margin(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._watch.margins.point(self._board, step, value)

    def _accuracy(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._watch.margins.accuracy(value)

    def _pair(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._watch.over_optimization.point(self._board, key, step, value)

    def _val_accuracy(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._watch.over_optimization.evaluation(self._board, step, value)

    def _kl(self, key: str, step: int, value: float) -> None:
        if -_LARGEST < value < _LARGEST:
            self._watch.kl.point(self._board, key, step, value)

    def _reward(self, key: str, step: int, value: float) -> None:
        self._board.is_reinforced = True  # also of a training whose configuration nobody knows
        if -_LARGEST < value < _LARGEST:
            self._watch.rewards.point(self._board, key, step, value)

    def described(self, found: Sighting) -> Finding:
        """One of `sightings` in words, with its patches while it is not over."""
        board = self._board
        numbers = {
            name: value
            for name, value in found.values.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        return Finding(
            id=found.id(self.placement),
            code=found.code,
            severity=found.severity,
            confidence=found.confidence,
            step=found.step,
            evidence=messages.evidence(found.code, found.values),
            explanation=messages.explained(found.code, found.values),
            patches=() if found.closed_at is not None else patches_for(found, board),
            advice=messages.advised(found.code, found.values),
            slots=numbers,
        )


_MACHINE = ("gpu_temp_c", "gpu_clock_mhz", "gpu_throttle", "gpu_util", "cpu_util", "net_mib_s")
