"""`Detectors`: routes a placement's points, samples and events to its detectors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors import messages
from trainer_runtime.core.diagnosis.detectors.detector import LARGEST, is_finite
from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.detector_set import EVENTS, DetectorSet
from trainer_runtime.core.diagnosis.detectors.ledger import Ledger, LedgerEntry
from trainer_runtime.core.diagnosis.detectors.patches import patches_for
from trainer_runtime.core.diagnosis.detectors.settings import Settings
from trainer_runtime.core.diagnosis.detectors.state import dump_state, restore_state
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.lines import number

_FORMAT = 2
# The loss of GRPO and similar methods starts at 0, may be negative, and its level means nothing
# (huggingface.co/docs/trl/grpo_trainer: the loss "starts at zero" and rises as the policy moves).
_REINFORCED = frozenset({"grpo", "rloo", "ppo"})


# A loss of 0 means nothing, nor does one that is a policy's objective.
_ERRORS = ("loss", "val_loss")


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
        self._context.is_reinforced = self.settings.config.get("method") in _REINFORCED
        self._detectors = detectors = DetectorSet(judges_learning=not self.settings.is_range_test)
        self._of_any, self._of_finite, self._of_errors = detectors.takes()
        self._events = detectors.by_name("event", "events")
        self._kinds = EVENTS | self._events.keys()
        self._steps, self._samples, self._ticks = map(detectors.hooks, ("step", "sample", "tick"))

    def point(self, key: str, step: int, t: float | None, value: float) -> None:
        """Feed one metric of one step. `t`: Unix seconds, None where unknown.

        Keys not listed in `keys` are ignored. A `loss` whose step goes back restarts the series, as
        after a resume. A point that is fed again counts once: some programs print each line twice.
        Feed the points of one rank only.
        """
        context = self._context
        newest = context.step
        if step != newest and (step > newest or key == "loss"):
            self._step(step, t)
        if not -LARGEST < value < LARGEST:
            takes = self._of_any
        elif (value == 0 and key == "loss") or (context.is_reinforced and key in _ERRORS):
            takes = self._of_finite
        else:
            takes = self._of_errors
        taken_by = takes.get(key)
        if not taken_by or (step == newest and context.of_step.get(key) == value):
            return
        if takes is not self._of_any:  # what is stored is finite
            context.of_step[key] = value
        for take in taken_by:
            take(context, key, step, value)

    def sample(self, t: float, values: Mapping[str, object]) -> None:
        """Feed a telemetry sample taken at `t`; keys may be per GPU (`gpu_util/0`)."""
        context = self._context
        finite = {}
        for key, raw in values.items():
            value = number(raw)
            if value is not None and is_finite(value):
                finite[key] = value
        context.machine = {key: finite[key] for key in _MACHINE if key in finite}
        for take in self._samples:
            take(context, t, finite)

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
        if kind not in self._kinds:
            return
        context, at = self._context, self._context.step if step is None else step
        read = Fields(fields or {}, kind)
        if kind in EVENTS:
            self._detectors.event(context, kind, at, read)
        for take in self._events.get(kind, ()):
            take(context, kind, at, read)
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
        if kind in self._kinds:
            own = {} if attempt is None else {"attempt": attempt}
            self.event(kind, t, step, {**own, **event.document})

    def tick(self, now: float) -> list[Finding]:
        """Check for a stall at `now` (Unix seconds) and return the open findings."""
        for take in self._ticks:
            take(self._context, now)
        return self.findings()

    def findings(self, *, closed: bool = False) -> list[Finding]:
        """The open findings in order of onset; with `closed` the closed ones too."""
        return [self.finding_of(entry) for entry in self.entries(closed=closed)]

    def entries(self, *, closed: bool = True) -> list[LedgerEntry]:
        """The ledger's entries: like `findings`, with all figures and the end of each."""
        return [entry for entry in self._context.ledger.all() if closed or entry.closed_at is None]

    @property
    def wanted_checkpoints(self) -> frozenset[int]:
        """The steps of the checkpoints that a rewind for an open finding would resume from, even
        where the finding isn't severe enough yet to propose a rewind."""
        steps = (
            self._context.safe_step(entry.onset)
            for entry in self.entries()
            if entry.closed_at is None and messages.CODES[entry.code].announces_rewind
        )
        return frozenset(step for step in steps if step is not None)

    @property
    def keys(self) -> Collection[str]:
        """The metric keys that are evaluated; others are ignored."""
        return self._of_errors.keys()

    @property
    def notes(self) -> list[tuple[int, float, float]]:
        """The newest isolated outliers as (step, loss, factor). They are not findings."""
        return list(self._context.notes)

    def to_dict(self) -> dict[str, Any]:
        """The complete state as JSON values, for `from_dict`."""
        return {
            "format": _FORMAT,
            "placement": self.placement,
            "ledger": self._context.ledger.to_dict(),
            "context": dump_state(self._context),
            "detectors": self._detectors.to_dict(),
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
        detectors._detectors.restore(data["detectors"])
        return detectors

    def _step(self, step: int, t: float | None) -> None:
        context = self._context
        if step < context.step:
            self._detectors.rewind(context, step)
        context.step = step
        context.of_step.clear()
        context.steps_seen += 1
        context.finished = False
        context.after_pause = context.pace.paused
        if t is not None:
            context.worked_s += context.pace.step(t)
            context.t = t
        else:
            context.pace.paused = False
        for take in self._steps:
            take(context, step)

    def finding_of(self, entry: LedgerEntry) -> Finding:
        """The finding of a ledger entry: its text, and its patches while it is open."""
        context = self._context
        numbers = {
            name: value
            for name, value in entry.values.items()
            if isinstance(value, (int, float)) and math.isfinite(value)
        }
        return Finding(
            id=entry.id(self.placement),
            code=entry.code,
            severity=entry.severity,
            confidence=entry.confidence,
            step=entry.step,
            evidence=messages.evidence(entry.code, entry.values),
            explanation=messages.explanation(entry.code, entry.values),
            patches=() if entry.closed_at is not None else patches_for(entry, context),
            advice=messages.advice(entry.code, entry.values),
            led_to=messages.CODES[entry.code].led_to,
            slots=numbers,
        )


_MACHINE = ("gpu_temp_c", "gpu_clock_mhz", "gpu_throttle", "gpu_util", "cpu_util", "net_mib_s")
