"""What may still go wrong with a run that is under way, in sentences for its status page."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex
from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.curve import Curve
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import gib_text, number_text, spoken_duration, usd_text
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import ATTACHED, number
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.status.loss_forecast import loss_forecast

# Verifying reads the checkpoint once; this long after the save it should be through.
_VERIFIED_AFTER_S = 600.0
_OVERDUE_TIMES = 2.0
_WRITING_S = 180.0
_SOON_H = 24.0
_FEWEST_SAMPLES = 8
_LEAST_SEEN_S = 600.0
_LEAST_SUNK_GIB = 0.05
# Before a third of the steps a curve says little; what lies within two deviations may still come.
_LEAST_SEEN = 1 / 3
_ERRORS = 2.0
_MOST_TIMES = 100.0
_LOSSES = ("loss", "val_loss")
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
        *_of_time(record, newest, config, now, remaining_s),
        *_of_target(newest, config),
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


def budget_risk(
    newest: Progress, remaining_s: float, usd: float, usd_per_h: float, budget_usd: float
) -> str | None:
    """What the budget buys, where it doesn't buy the rest; `usd`: spent by now."""
    needed_usd = remaining_s / 3600 * usd_per_h
    if usd + needed_usd <= budget_usd:
        return None
    left_s = max(0.0, (budget_usd - usd) / usd_per_h * 3600)
    return (
        f"It will cost about {usd_text(usd + needed_usd)}, but limits.budget_usd is "
        f"{usd_text(budget_usd)}{_reaches(newest, left_s, remaining_s)}."
    )


def _reaches(newest: Progress, left_s: float, remaining_s: float) -> str:
    """How far the run gets in the time that is left."""
    if not newest.steps_done or not newest.target_step or remaining_s <= 0:
        return ""
    more = int((newest.target_step - newest.step) * left_s / remaining_s)
    return f": enough up to about step {newest.step + more:,} of {newest.target_step:,}"


def _of_target(newest: Progress, config: RunConfig) -> Iterable[str]:
    """A loss that a phase is to come below, and that the curve doesn't lead to."""
    curriculum = Curriculum.of(config)
    if not curriculum.has_phases or not newest.steps_done:
        return
    phase = curriculum.phase_at(min(newest.step + 1, config.steps))
    success = next((item.success for item in config.phases if item.name == phase.name), None)
    if success is None or success.below is None or success.metric not in _LOSSES:
        return
    ends = [float(newest.started_at_step or 0), *newest.losses.xs]
    middles = [(begin + end + 1) / 2 for begin, end in pairwise(ends)]  # of the means' stretches
    means = zip(middles, newest.losses.values, strict=True)
    forecast = loss_forecast([(x, value) for x, value in means if value is not None])
    if forecast is None or newest.step < _LEAST_SEEN * phase.ends:
        return
    # A validation loss stands above or below that of training as it does now.
    measured = number(newest.last.get(success.metric))
    apart = 0.0 if measured is None else measured - forecast.at(newest.step)
    expected = forecast.at(phase.ends) + apart
    if expected - _ERRORS * forecast.error < success.below:
        return
    step = forecast.step_of(success.below - apart)
    possible = (
        "no number of steps leads there at these settings"
        if step is None or step > _MOST_TIMES * phase.ends
        else f"about {int(step):,} steps would"
    )
    yield (
        f"{success.metric} is on its way to {number_text(expected, 3)} at step {phase.ends:,}, but "
        f"phase {phase.name} is to end below {number_text(success.below)}: {possible}."
    )


def _of_time(
    record: Record,
    newest: Progress,
    config: RunConfig,
    now: float,
    remaining_s: float | None,
) -> Iterable[str]:
    limit_s = config.limits.max_runtime_s
    if limit_s is None or remaining_s is None:
        return
    left_s = limit_s - sum(attempt.seconds(now) for attempt in record.attempts)
    if remaining_s > left_s:
        needed, left = spoken_duration(remaining_s), spoken_duration(left_s)
        reaches = _reaches(newest, max(0.0, left_s), remaining_s)
        yield f"It needs about {needed} more, but limits.max_runtime ends it in {left}{reaches}."


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
