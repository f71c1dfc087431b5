"""What may still go wrong with a run that is under way, in sentences for its status page."""

from __future__ import annotations

from collections.abc import Iterable

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import gib_text, spoken_duration
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import ATTACHED, number
from trainer_runtime.core.protocol.progress import Progress

# Verifying reads the checkpoint once; this long after the save it should be through.
_VERIFIED_AFTER_S = 600.0
_OVERDUE_TIMES = 2.0
_WRITING_S = 180.0
_SOON_H = 24.0
_FEWEST_SAMPLES = 8
_LEAST_SEEN_S = 600.0
_LEAST_SUNK_GIB = 0.05
_CARRIED_ON = 4.0  # times the span that was seen


def risks(
    record: Record,
    newest: Progress,
    index: CheckpointIndex,
    config: RunConfig,
    now: float,
    remaining_s: float | None,
) -> list[str]:
    """The risks at `now` (Unix seconds) of a run that has not ended, the gravest first.

    `remaining_s`: what the run still takes at its present pace.
    """
    return [
        *_of_checkpoints(newest, index, config, now),
        *_of_time(record, config, now, remaining_s),
        *_of_disk(record, remaining_s),
        *_of_mirror(record),
    ]


def disk_hours_left(free: Curve, free_gib: float | None) -> float | None:
    """At the rate at which the lowest free space sinks; None while it doesn't, or nobody knows.

    Lows are held against lows, since space comes back with every checkpoint that is pruned; a trend
    is carried on for four times as long as it was seen.
    """
    points = [
        (x, value) for x, value in zip(free.xs, free.values, strict=True) if value is not None
    ]
    if free_gib is None or len(points) < _FEWEST_SAMPLES:
        return None
    span_s = points[-1][0] - points[0][0]
    half = len(points) // 2
    sunk = min(value for _, value in points[:half]) - min(value for _, value in points[half:])
    if span_s < _LEAST_SEEN_S or sunk <= _LEAST_SUNK_GIB:
        return None
    hours = free_gib / sunk * span_s / 2 / 3600
    return hours if hours < _CARRIED_ON * span_s / 3600 else None


def _of_checkpoints(
    newest: Progress, index: CheckpointIndex, config: RunConfig, now: float
) -> Iterable[str]:
    if config.framework == ATTACHED:  # what they hold and whether they are whole, its owner knows
        return
    if index.resume_from is None and newest.steps_done:
        yield "No verified checkpoint yet: a crash now loses everything."
    if any(entry.verified is False for entry in index.entries):
        yield "A checkpoint is damaged; the one before it would be taken."
    last = index.entries[-1] if index.entries else None
    if last is not None and last.verified is None and now - last.time > _VERIFIED_AFTER_S:
        age = spoken_duration(now - last.time)
        yield f"The checkpoint of step {last.step:,} was saved {age} ago and is not verified yet."
    overdue = _overdue(newest, index, config, now)
    if overdue is not None:
        yield overdue


def _overdue(newest: Progress, index: CheckpointIndex, config: RunConfig, now: float) -> str | None:
    every = newest.checkpoint_every or config.checkpoint.every
    last = index.entries[-1] if index.entries else None
    began_step = newest.started_at_step or 0
    if isinstance(every, int):
        if every < 1:
            return None
        steps = newest.step - max(began_step, last.step if last else 0)
        if steps > _OVERDUE_TIMES * every:
            return f"No checkpoint for {steps:,} steps, where one is due every {every:,}."
        return None
    began_t = newest.first_event_t
    interval_s = _seconds(every)
    if interval_s is None or began_t is None or newest.completed:
        return None
    waited_s = now - max(began_t, last.time if last else 0.0)
    if waited_s > _OVERDUE_TIMES * interval_s + _WRITING_S:
        return f"No checkpoint for {spoken_duration(waited_s)}, where one is due every {every}."
    return None


def _seconds(every: str) -> float | None:
    try:
        return parse_duration(every)
    except ValueError:
        return None


def _of_time(
    record: Record, config: RunConfig, now: float, remaining_s: float | None
) -> Iterable[str]:
    limit_s = config.limits.max_runtime_s
    if limit_s is None or remaining_s is None:
        return
    left_s = limit_s - sum(attempt.seconds(now) for attempt in record.attempts)
    if remaining_s > left_s:
        needed, left = spoken_duration(remaining_s), spoken_duration(left_s)
        yield f"It needs about {needed} more, but limits.max_runtime ends it in {left}."


def _of_disk(record: Record, remaining_s: float | None) -> Iterable[str]:
    free_gib = number(record.telemetry.get("disk_free_gib"))
    hours = disk_hours_left(record.disk_free, free_gib)
    if hours is None or free_gib is None:
        return
    soon = hours < _SOON_H if remaining_s is None else 3600 * hours < remaining_s
    if soon:
        left = spoken_duration(3600 * hours)
        yield f"The disk is full in about {left} at this rate: {gib_text(free_gib)} are free."


def _of_mirror(record: Record) -> Iterable[str]:
    if record.mirror_problem is not None:
        yield f"Checkpoints have no second copy: {record.mirror_problem}"
