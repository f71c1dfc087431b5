"""`Detectors`: routes a placement's points, samples and events to its detectors."""

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
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.detector_set import DetectorSet
from trainer_runtime.core.diagnosis.detectors.event_handlers import EVENT_HANDLERS
from trainer_runtime.core.diagnosis.detectors.ledger import Ledger, LedgerEntry
from trainer_runtime.core.diagnosis.detectors.patches import patches_for
from trainer_runtime.core.diagnosis.detectors.settings import Settings
from trainer_runtime.core.diagnosis.detectors.state import dump_state, restore_state
from trainer_runtime.core.diagnosis.remedies import ANNOUNCE_A_REWIND
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.lines import number

_FORMAT = 1
# Kept for causes and reports; no detector evaluates these keys itself.
_REMEMBERED = ("lr", "data_time_share", "comm_time_share", "mfu", "loss_scale")
# Larger values count as infinite: their sums and squares would be.
_LARGEST = 1e30
_NOTED_EVERY = 32  # points
# The loss of GRPO and similar methods starts at 0, may be negative, and its level means nothing
# (huggingface.co/docs/trl/grpo_trainer: the loss "starts at zero" and rises as the policy moves).
_REINFORCED = frozenset({"grpo", "rloo", "ppo"})

Handler = Callable[[str, int, float], None]


class Detectors:
    """Evaluates one placement, attempt by attempt. Feed it in the order of events.

    Pure: times come with the input. The same input gives the same findings under the same ids, on
    host and client, from the start or continued from `to_dict`. Memory is bounded: windows of 64
    values, trends of 64 means, the newest 64 closed findings.
    """

    def __init__(
        self, settings: Settings | None = None, *, placement: int = 1, attempt: int = 1
    ) -> None:
        """`placement` and `attempt` become part of the findings' ids; both are 0 for a file."""
        self.settings = settings or Settings()
        self.placement = placement
        self._context = DetectorContext(self.settings, Ledger(attempt))
        self._detectors = DetectorSet()
        self._handlers: dict[str, Handler] = {
            "loss": self._loss,
            "grad_norm": self._grad_norm,
            "val_loss": self._val_loss,
        }
        self._handlers |= dict.fromkeys(throughput.KEYS, self._speed)
        self._preference_handlers: dict[str, Handler] = {
            **dict.fromkeys(margins.MARGINS, self._margin),
            **dict.fromkeys(margins.ACCURACIES, self._accuracy),
            **dict.fromkeys(overoptimization.ROW, self._pair),
            **dict.fromkeys(overoptimization.VAL_ACCURACIES, self._val_accuracy),
            **dict.fromkeys(kl.KEYS, self._kl),
            **dict.fromkeys(rewards.KEYS, self._reward),
        }
        self._handlers |= dict.fromkeys(self._preference_handlers, self._preference)
        self._context.is_reinforced = self.settings.config.get("method") in _REINFORCED
        self._handlers |= {key: self._remember for key in _REMEMBERED if key != "mfu"}
        self._handlers["mfu"] = self._speed

    def point(self, key: str, step: int, t: float | None, value: float) -> None:
        """Feed one metric of one step. `t`: Unix seconds, None where unknown.

        Keys not listed in `keys` are ignored. A `loss` whose step goes back restarts the series, as
        after a resume. Feed the points of one rank only.
        """
        newest = self._context.step
        if step != newest and (step > newest or key == "loss"):
            self._step(step, t)
        handler = self._handlers.get(key)
        if handler is not None:
            handler(key, step, value)

    def sample(self, t: float, values: Mapping[str, object]) -> None:
        """Feed a telemetry sample taken at `t`; keys may be per GPU (`gpu_util/0`)."""
        context = self._context
        finite = {}
        for key, raw in values.items():
            value = number(raw)
            if value is not None and -_LARGEST < value < _LARGEST:
                finite[key] = value
        context.machine = {key: finite[key] for key in _MACHINE if key in finite}
        self._detectors.gpu.sample(context, t, finite)
        for memory in self._detectors.memories:
            memory.sample(context, t, finite)
        if "disk_free_gib" in finite:
            self._detectors.disk.sample(context, t, finite["disk_free_gib"])
        self._detectors.stall.check(context, self._detectors.pace, t)

    def event(
        self,
        kind: str,
        t: float | None = None,
        step: int | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Feed an event of trainer, journal or log; unknown kinds are ignored.

        Kinds: `started resumed eval checkpoint phase warning decision completed` of the trainer,
        `attempt_starting attempt_ended` of the journal. `fields` are the event's other fields.
        Feed the points of `metric` and `eval` events with `point`.
        """
        context, handler = self._context, EVENT_HANDLERS.get(kind)
        if handler is not None:
            at = context.step if step is None else step
            handler(context, self._detectors, at, Fields(fields or {}, kind))
        if t is not None and kind in ("eval", "checkpoint") and (context.t or 0.0) < t:
            context.t = t

    def feed(self, event: Event, attempt: int | None = None) -> None:
        """Feed one line of `events.jsonl` or `supervisor.jsonl`, as `protocol.decode` returns it.

        `attempt`: the attempt whose file the line is in; a trainer's `started` doesn't contain it.
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
        if kind in EVENT_HANDLERS:
            own = {} if attempt is None else {"attempt": attempt}
            self.event(kind, t, step, {**own, **event.document})

    def tick(self, now: float) -> list[Finding]:
        """Check for a stall at `now` (Unix seconds) and return the open findings."""
        self._detectors.stall.check(self._context, self._detectors.pace, now)
        return self.findings()

    def findings(self, *, closed: bool = False) -> list[Finding]:
        """The open findings in order of onset; with `closed` the closed ones too."""
        return [self.finding_of(found) for found in self.entries(closed=closed)]

    def entries(self, *, closed: bool = True) -> list[LedgerEntry]:
        """The ledger's entries: like `findings`, with all figures and the end of each."""
        return [found for found in self._context.ledger.all() if closed or found.closed_at is None]

    @property
    def wanted_checkpoints(self) -> frozenset[int]:
        """The steps of the checkpoints that a rewind for an open finding would resume from, even
        where the finding isn't severe enough yet to propose a rewind."""
        found = (
            self._context.safe_step(one.onset)
            for one in self._context.ledger.all()
            if one.closed_at is None and one.code in ANNOUNCE_A_REWIND
        )
        return frozenset(step for step in found if step is not None)

    @property
    def keys(self) -> Collection[str]:
        """The metric keys that are evaluated; others are ignored."""
        return self._handlers.keys()

    @property
    def notes(self) -> list[tuple[int, float, float]]:
        """The newest isolated outliers as (step, loss, factor). They are not findings."""
        return list(self._detectors.spike.notes)

    def to_dict(self) -> dict[str, Any]:
        """The complete state as JSON values, for `from_dict`."""
        return {
            "format": _FORMAT,
            "placement": self.placement,
            "ledger": self._context.ledger.to_dict(),
            "context": dump_state(self._context),
            "detectors": dump_state(self._detectors),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], settings: Settings | None = None) -> Detectors:
        """The detectors whose state `to_dict` returned. The caller has to keep `settings` itself.

        Raises:
            ValueError: the state has another format version.
        """
        if data.get("format") != _FORMAT:
            raise ValueError(f"detector state of format {data.get('format')!r} is not supported")
        detectors = cls(settings, placement=data["placement"])
        detectors._context.ledger = Ledger.from_dict(data["ledger"])
        restore_state(detectors._context, data["context"])
        restore_state(detectors._detectors, data["detectors"])
        return detectors

    def _step(self, step: int, t: float | None) -> None:
        context, detectors = self._context, self._detectors
        if step < context.step:
            detectors.rewind(context, step)
        context.step = step
        context.steps_seen += 1
        context.finished = False
        context.after_pause = detectors.pace.paused
        if t is not None:
            context.worked_s += detectors.pace.step(t)
            context.t = t
        else:
            detectors.pace.paused = False
        detectors.stall.progressed(context, step)
        detectors.checkpoints.point(context, step)
        if context.steps_seen >= detectors.missing_loss.due:
            detectors.missing_loss.overdue(context, step)

    def _loss(self, key: str, step: int, value: float) -> None:
        context, detectors = self._context, self._detectors
        detectors.missing_loss.loss(context, step)
        if not -_LARGEST < value < _LARGEST:
            detectors.nonfinite.seen(context, key, step, value)
            return
        not_learning = detectors.not_learning
        not_learning.point(context, not_learning.loss, step, value)
        if value == 0 and not context.is_reinforced:
            detectors.nonfinite.zero(context, step)
            return
        if detectors.nonfinite.lost:
            detectors.nonfinite.finite(context, step)
        if detectors.nonfinite.overflows:
            detectors.nonfinite.finite_loss_beside(context, step, value)
        if context.is_reinforced:
            context.losses.append((step, value))
            return
        detectors.spike.point(context, step, value)
        context.losses.append((step, value))
        if not detectors.early_divergence.is_over:
            detectors.early_divergence.point(context, step, value)
        if not detectors.early_divergence.is_open:
            detectors.divergence.point(context, step, detectors.spike.outlier.window)
        detectors.plateau.point(context, step, value)
        if detectors.divergence.points % _NOTED_EVERY == 0:
            detectors.resumed.note(context, step, detectors.spike.outlier.window)
        if detectors.resumed.before:
            detectors.resumed.point(context, step, value)

    def _grad_norm(self, key: str, step: int, value: float) -> None:
        context, detectors = self._context, self._detectors
        if not -_LARGEST < value < _LARGEST:
            detectors.nonfinite.seen(context, key, step, value)
            return
        if detectors.nonfinite.overflows:
            detectors.nonfinite.finite_gradient(context, step)
        if value == 0 and detectors.nonfinite.zeros:
            detectors.nonfinite.zero_gradient(context)
        not_learning = detectors.not_learning
        not_learning.point(context, not_learning.grad_norm, step, value)
        detectors.gradient.point(context, step, value)
        context.grad_norms.append((step, value))
        detectors.spike.gradient(context, step, value)

    def _val_loss(self, key: str, step: int, value: float) -> None:
        context, detectors = self._context, self._detectors
        detectors.pace.pause(step, detectors.stall.silent_s)
        detectors.stall.progressed(context, context.step)
        if not -_LARGEST < value < _LARGEST:
            detectors.nonfinite.seen(context, key, step, value)
            return
        context.ledger.close("nan_eval", step)
        if context.is_reinforced:
            return
        window = detectors.spike.outlier.window
        training_loss = window.median if len(window) else None
        detectors.overfitting.evaluation(context, step, value, training_loss)
        detectors.plateau.evaluation(step, value)

    def _speed(self, key: str, step: int, value: float) -> None:
        if not -_LARGEST < value < _LARGEST:
            return
        if key == "mfu":
            self._context.latest[key] = value
        self._detectors.throughput.point(self._context, key, step, value)

    def _remember(self, key: str, step: int, value: float) -> None:
        if not -_LARGEST < value < _LARGEST:
            return
        self._context.latest[key] = value
        if key == "lr":
            not_learning = self._detectors.not_learning
            not_learning.point(self._context, not_learning.lr, step, value)

    def _preference(self, key: str, step: int, value: float) -> None:
        context, nonfinite = self._context, self._detectors.nonfinite
        if key in rewards.KEYS:
            context.is_reinforced = True  # also where the configuration is unknown
        if not -_LARGEST < value < _LARGEST:
            nonfinite.metric(context, key, step, value)
            return
        if nonfinite.metrics:
            nonfinite.finite_metric(context, key, step)
        self._preference_handlers[key](key, step, value)

    def _margin(self, key: str, step: int, value: float) -> None:
        self._detectors.margins.point(self._context, step, value)

    def _accuracy(self, key: str, step: int, value: float) -> None:
        self._detectors.margins.accuracy(value)

    def _pair(self, key: str, step: int, value: float) -> None:
        self._detectors.over_optimization.point(self._context, key, step, value)

    def _val_accuracy(self, key: str, step: int, value: float) -> None:
        self._detectors.over_optimization.evaluation(self._context, step, value)

    def _kl(self, key: str, step: int, value: float) -> None:
        self._detectors.kl.point(self._context, key, step, value)

    def _reward(self, key: str, step: int, value: float) -> None:
        self._detectors.rewards.point(self._context, key, step, value)

    def finding_of(self, found: LedgerEntry) -> Finding:
        """The finding of a ledger entry: its text, and its patches while it is open."""
        context = self._context
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
            explanation=messages.explanation(found.code, found.values),
            patches=() if found.closed_at is not None else patches_for(found, context),
            advice=messages.advice(found.code, found.values),
            led_to=messages.LED_TO.get(found.code, ()),
            slots=numbers,
        )


_MACHINE = ("gpu_temp_c", "gpu_clock_mhz", "gpu_throttle", "gpu_util", "cpu_util", "net_mib_s")
