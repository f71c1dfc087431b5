"""How far one attempt has come, folded from its `events.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer_runtime.core.decoding import Fields, JsonRecord, number
from trainer_runtime.core.protocol.best_metric import badness, is_rated
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.profile import Profile
from trainer_runtime.core.protocol.time_spent import TimeSpent
from trainer_runtime.core.protocol.trainer_lines import (
    CheckpointChanged,
    Completed,
    Decided,
    PhaseChanged,
    RanksAggregated,
    Started,
    TargetChanged,
    TrainerLine,
    Warned,
    trainer_line,
)

# Weight of the newest step in the smoothed step time that the ETA is made of: about 20 steps.
_STEP_TIME_WEIGHT = 0.1
# A step that takes this many times the usual, and longer than that, is overdue.
_TIMES_USUAL = 10.0
_LEAST_OVERDUE_S = 60.0


@dataclass(slots=True)
class SavedCheckpoint:
    """A checkpoint as its attempt reported it. `verified` is False once it failed a check;
    `phase` the tag of a phase that ends with it."""

    step: int
    attempt: int
    time: float
    path: str
    size_bytes: int
    metrics: dict[str, Any]
    verified: bool | None = None
    reason: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class TrainerWarning(JsonRecord):
    """What the trainer itself has warned of, such as a loss that is not finite, at `t`."""

    code: str | None
    step: int | None
    message: str | None
    t: float
    values: Mapping[str, object] | None


@dataclass(slots=True)
class Progress:
    """What an attempt's events add up to. `apply` takes them one by one, in order.

    `saved_by` is the attempt that had saved the checkpoint it resumed from;
    `last` holds the newest value of every metric key; `best` the best of each rated metric of the
    evaluations as (value, step); `pruned` the steps of earlier attempts' checkpoints that this one
    removed; `skipped` the checkpoints that resuming passed over, with the reason; `losses` the
    training losses over the steps; `checkpoint_every` how often it has decided to save;
    `longest_save_s` what writing a checkpoint has taken at most; `ranks` the newest aggregate over
    ranks, as `RanksAggregated`'s fields; `profile` the newest one, as `Profile`'s; `missed` the
    phase that has just ended without success, `verdicts` of the phases that have ended, in words;
    `stopped_early` why it ends before the last step of its configuration, in words; `spent` where
    its time went.
    """

    attempt: int
    started_at_step: int | None = None
    resumed_from: int | None = None
    saved_by: int | None = None
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
    warnings: list[TrainerWarning] = field(default_factory=list)
    described: dict[str, Any] = field(default_factory=dict)
    phase: str | None = None
    missed: str | None = None
    verdicts: dict[str, str] = field(default_factory=dict)
    stopped_early: str | None = None
    checkpoint_every: int | str | None = None
    losses: Curve = field(default_factory=Curve)
    completed: bool = False
    final: str | None = None
    longest_save_s: float = 0.0
    ranks: dict[str, Any] = field(default_factory=dict)
    profile: dict[str, Any] | None = None
    spent: TimeSpent = field(default_factory=TimeSpent)
    last_seq: int = -1

    def apply(self, event: Event) -> None:
        """Take in one event; what is not known here, by kind or by form, changes nothing but the
        clock."""
        self.first_event_t = event.t if self.first_event_t is None else self.first_event_t
        self.last_event_t, self.last_seq = event.t, event.seq
        if _apply_values(self, event):
            return
        line = trainer_line(event)
        if line is not None:
            with suppress(ValueError):  # a step by a name
                _apply(self, event.t, line)

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
        fields["warnings"] = [
            TrainerWarning.of(Fields(warning, "progress")) for warning in fields["warnings"]
        ]
        fields["losses"] = Curve.from_dict(fields.get("losses"))
        fields["spent"] = TimeSpent.from_dict(fields.get("spent"))
        return cls(**fields)


def _apply_values(progress: Progress, event: Event) -> bool:
    """Take in a line of metrics; False where it is another."""
    if event.kind == "metric":
        _metric(progress, event)
    elif event.kind == "eval":
        _evaluated(progress, event)
        seconds = number(event.document.get("seconds"))
        progress.spent.evaluated(event.t, event.step or 0, seconds)
    elif event.kind == "history":
        _history(progress, event)
    else:
        return False
    return True


def _metric(progress: Progress, event: Event) -> None:
    progress.step = event.step or 0
    progress.steps_done += 1
    progress.last_step_t = event.t
    values = event.values
    progress.last.update(values)
    loss = number(values.get("loss"))
    if loss is not None:
        progress.losses.add(progress.step, loss)
    seconds = number(values.get("step_time_s"))
    progress.spent.stepped(event.t, progress.step, seconds)
    if seconds is not None and seconds > 0:
        old = progress.step_time_s
        smoothed = seconds if old is None else old + _STEP_TIME_WEIGHT * (seconds - old)
        progress.step_time_s = smoothed


def _history(progress: Progress, event: Event) -> None:
    """What was measured before the run was one of ours: no step of this attempt."""
    loss = number(event.values.get("loss"))
    if loss is not None:
        progress.losses.add(event.step or 0, loss)
    _evaluated(progress, event)


def _evaluated(progress: Progress, event: Event) -> None:
    for key, raw in event.values.items():
        progress.last[key] = raw
        value = number(raw)
        if value is None or math.isnan(value) or not is_rated(key):
            continue
        best = progress.best.get(key)
        if best is None or badness(key, value) < badness(key, best[0]):
            progress.best[key] = (value, event.step or 0)


def _apply(progress: Progress, t: float, line: TrainerLine) -> None:
    if isinstance(line, Started):
        progress.started_at_step = progress.step = line.step
        progress.resumed_from, progress.saved_by = line.resumed_from, line.saved_by
        progress.target_step = line.target_step
        progress.skipped.update(line.skipped)
        progress.described = dict(line.described)
        progress.spent.started(t, line.step)
    elif isinstance(line, TargetChanged):
        progress.target_step = line.target_step
        early = line.stopped_early
        progress.stopped_early = None if early is None else early.words
    elif isinstance(line, CheckpointChanged):
        _checkpoint(progress, t, line)
    elif isinstance(line, Decided):
        _decision(progress, line)
    elif isinstance(line, PhaseChanged):
        progress.phase = line.name or None
        if not line.ended:
            progress.step_time_s = None  # its steps may have another size
        progress.missed = line.name if line.ended and line.met is False else None
        if line.ended and line.verdict is not None:
            progress.verdicts[line.name] = line.verdict
    elif isinstance(line, Warned):
        warning = TrainerWarning(line.code, line.step, line.message, t, line.values)
        progress.warnings = [*progress.warnings[-19:], warning]
    elif isinstance(line, RanksAggregated):
        progress.ranks = asdict(line)
    elif isinstance(line, Profile):
        progress.profile = line.to_dict()
    elif isinstance(line, Completed):
        progress.completed, progress.final = True, line.final


def _checkpoint(progress: Progress, t: float, line: CheckpointChanged) -> None:
    step = line.step
    if line.action == "saved":
        progress.longest_save_s = max(progress.longest_save_s, line.save_s)
        progress.spent.saved(line.stall_s)
        progress.checkpoints[step] = SavedCheckpoint(
            step=step,
            attempt=progress.attempt,
            time=t,
            path=line.path,
            size_bytes=line.size_bytes,
            metrics=dict(line.metrics),
            phase=line.phase,
        )
    elif line.action == "pruned":
        if progress.checkpoints.pop(step, None) is None:
            progress.pruned.append(step)
    elif line.action == "verified" and step in progress.checkpoints:
        progress.checkpoints[step].verified = True
    elif line.action == "failed":
        _checkpoint_failed(progress, step, line.reason or "the save failed")


def _checkpoint_failed(progress: Progress, step: int, reason: str) -> None:
    progress.skipped[step] = reason
    saved = progress.checkpoints.get(step)
    if saved is not None:
        saved.verified, saved.reason = False, reason


def _decision(progress: Progress, line: Decided) -> None:
    if line.what == "skip_checkpoint" and line.value is not None:
        progress.skipped[int(line.value)] = line.reason
    elif line.what == "checkpoint_every" and line.value is not None:
        progress.checkpoint_every = line.value


def is_overdue(age_s: float, usual_s: float) -> bool:
    """Whether the newest step is so old, by the usual time of a step, that something holds it."""
    return age_s > max(_LEAST_OVERDUE_S, _TIMES_USUAL * usual_s)


def newest_progress(attempts: Sequence[Progress]) -> Progress | None:
    """The newest attempt that has come to a start, else the newest at all."""
    started = [progress for progress in attempts if progress.started_at_step is not None]
    candidates = started or list(attempts)
    return candidates[-1] if candidates else None
