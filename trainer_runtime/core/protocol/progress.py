"""How far one attempt has come, folded from its `events.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.protocol.best_metric import badness, is_rated
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.lines import ODD_FIELDS, Event, number

# Weight of the newest step in the smoothed step time that the ETA is made of: about 20 steps.
_STEP_TIME_WEIGHT = 0.1


@dataclass(slots=True)
class SavedCheckpoint:
    """A checkpoint as its attempt reported it. `verified` is False once it failed a check."""

    step: int
    attempt: int
    time: float
    path: str
    size_bytes: int
    metrics: dict[str, Any]
    verified: bool | None = None
    reason: str | None = None


@dataclass(slots=True)
class Progress:
    """What an attempt's events add up to. `apply` takes them one by one, in order.

    `last` holds the newest value of every metric key; `best` the best of each rated metric of the
    evaluations as (value, step); `pruned` the steps of earlier attempts' checkpoints that this one
    removed; `skipped` the checkpoints that resuming passed over, with the reason; `losses` the
    training losses over the steps; `checkpoint_every` how often it has decided to save;
    `longest_save_s` what writing a checkpoint has taken at most.
    """

    attempt: int
    started_at_step: int | None = None
    resumed_from: int | None = None
    target_step: int | None = None
    step: int = 0
    steps_done: int = 0
    first_event_t: float | None = None
    last_event_t: float | None = None
    last_step_t: float | None = None
    step_time_s: float | None = None
    last: dict[str, Any] = field(default_factory=dict)
    best: dict[str, tuple[float, int]] = field(default_factory=dict)
    checkpoints: dict[int, SavedCheckpoint] = field(default_factory=dict)
    pruned: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    described: dict[str, Any] = field(default_factory=dict)
    phase: str | None = None
    checkpoint_every: int | str | None = None
    losses: Curve = field(default_factory=Curve)
    completed: bool = False
    final: str | None = None
    longest_save_s: float = 0.0
    last_seq: int = -1

    def apply(self, event: Event) -> None:
        """Take in one event; what is not known here, by kind or by form, changes nothing but the
        clock."""
        self.first_event_t = event["t"] if self.first_event_t is None else self.first_event_t
        self.last_event_t = event["t"]
        self.last_seq = event["seq"]
        handler = _HANDLERS.get(event["kind"])
        if handler is None:
            return
        try:
            handler(self, event)
        except ODD_FIELDS:
            return

    @property
    def verified_step(self) -> int | None:
        """The newest step whose checkpoint was read back and found whole."""
        steps = [step for step, saved in self.checkpoints.items() if saved.verified]
        return max(steps, default=None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Progress:
        """The progress that `to_dict` described, also after a journey through JSON."""
        fields = dict(data)
        fields["checkpoints"] = {
            int(step): SavedCheckpoint(**saved) for step, saved in fields["checkpoints"].items()
        }
        fields["skipped"] = {int(step): reason for step, reason in fields["skipped"].items()}
        fields["best"] = {key: (value, step) for key, (value, step) in fields["best"].items()}
        fields["losses"] = Curve.from_dict(fields.get("losses"))
        return cls(**fields)


def _started(progress: Progress, event: Event) -> None:
    progress.started_at_step = progress.step = int(event.get("step") or 0)
    progress.resumed_from = event.get("resumed_from")
    progress.target_step = event.get("target_step")
    for passed_over in event.get("skipped") or []:
        progress.skipped[int(passed_over["step"])] = str(passed_over["reason"])
    keys = ("parameters", "device", "precision", "tokens_per_step", "peak_flops", "torch")
    progress.described = {key: event[key] for key in keys if event.get(key) is not None}


def _target(progress: Progress, event: Event) -> None:
    progress.target_step = event.get("target_step")


def _metric(progress: Progress, event: Event) -> None:
    progress.step = int(event["step"])
    progress.steps_done += 1
    progress.last_step_t = event["t"]
    values = event.get("values") or {}
    progress.last.update(values)
    loss = number(values.get("loss"))
    if loss is not None:
        progress.losses.add(progress.step, loss)
    seconds = number(values.get("step_time_s"))
    if seconds is not None and seconds > 0:
        old = progress.step_time_s
        smoothed = seconds if old is None else old + _STEP_TIME_WEIGHT * (seconds - old)
        progress.step_time_s = smoothed


def _history(progress: Progress, event: Event) -> None:
    """What was measured before the run was one of ours: no step of this attempt."""
    loss = number((event.get("values") or {}).get("loss"))
    if loss is not None:
        progress.losses.add(int(event["step"]), loss)
    _evaluated(progress, event)


def _evaluated(progress: Progress, event: Event) -> None:
    step = int(event["step"])
    for key, raw in (event.get("values") or {}).items():
        progress.last[key] = raw
        value = number(raw)
        if value is None or math.isnan(value) or not is_rated(key):
            continue
        best = progress.best.get(key)
        if best is None or badness(key, value) < badness(key, best[0]):
            progress.best[key] = (value, step)


def _checkpoint(progress: Progress, event: Event) -> None:
    step, action = int(event["step"]), event.get("action")
    if action == "saved":
        took_s = (number(event.get(key)) or 0.0 for key in ("stall_s", "write_s"))
        progress.longest_save_s = max(progress.longest_save_s, sum(took_s))
        progress.checkpoints[step] = SavedCheckpoint(
            step=step,
            attempt=progress.attempt,
            time=event["t"],
            path=str(event.get("path", "")),
            size_bytes=int(event.get("size_bytes") or 0),
            metrics=dict(event.get("metrics") or {}),
        )
    elif action == "pruned":
        if progress.checkpoints.pop(step, None) is None:
            progress.pruned.append(step)
    elif action == "verified" and step in progress.checkpoints:
        progress.checkpoints[step].verified = True
    elif action == "failed":
        _checkpoint_failed(progress, step, str(event.get("reason", "the save failed")))


def _checkpoint_failed(progress: Progress, step: int, reason: str) -> None:
    progress.skipped[step] = reason
    saved = progress.checkpoints.get(step)
    if saved is not None:
        saved.verified, saved.reason = False, reason


def _decision(progress: Progress, event: Event) -> None:
    if event.get("what") == "skip_checkpoint" and event.get("value") is not None:
        progress.skipped[int(event["value"])] = str(event.get("reason", ""))
    elif event.get("what") == "checkpoint_every" and isinstance(event.get("value"), (int, str)):
        progress.checkpoint_every = event["value"]


def _phase(progress: Progress, event: Event) -> None:
    progress.phase = str(event.get("name", "")) or None


def _warning(progress: Progress, event: Event) -> None:
    kept = {key: event.get(key) for key in ("code", "step", "message", "t", "values")}
    progress.warnings = [*progress.warnings[-19:], kept]


def _completed(progress: Progress, event: Event) -> None:
    progress.completed = True
    progress.final = event.get("final")


_HANDLERS = {
    "started": _started,
    "target": _target,
    "metric": _metric,
    "eval": _evaluated,
    "history": _history,
    "checkpoint": _checkpoint,
    "decision": _decision,
    "phase": _phase,
    "warning": _warning,
    "completed": _completed,
}
