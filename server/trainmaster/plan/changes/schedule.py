"""The learning-rate schedule of a resumed run: it continues from where it stood, unless it is asked
to be laid again, and what becomes of the rate is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.config.optimization import ScheduleConfig
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.policy.patch import apply_sets
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.figures import number_text
from trainmaster.plan.fields.field_tree import keeping

_LENGTH, _WARMUP = "schedule.steps", "schedule.warmup_steps"


def sets_of_schedule(
    asked: Sequence[str], newest: ConfigDocument, after: ConfigDocument
) -> list[str]:
    """The `--set` items that keep the schedule of the `newest` attempt where the number of steps
    changes, and with it what is laid over them; none of what is `asked`."""
    schedule = newest.get("schedule")
    changes_length = any(after.get(path) != newest.get(path) for path in keeping("schedule"))
    if not isinstance(schedule, Mapping) or not changes_length:
        return []
    warmup_steps, last = schedule.get("warmup_steps") or 0, after.get("steps") or 0
    kept = {_WARMUP: warmup_steps} if warmup_steps <= last else {}
    if "steps" in schedule:  # runs of an earlier version have no length of their own
        kept[_LENGTH] = schedule["steps"] or newest["steps"]
    named = {item.partition("=")[0].strip() for item in asked}
    if "schedule" in named:
        return []
    return [f"{path}={value}" for path, value in kept.items() if path not in named]


def rate_in_words(before: ConfigDocument, changed: Mapping[str, Any], begins: int) -> str | None:
    """What becomes of steps and rate for a training that continues behind step `begins`; None where
    neither changes."""
    touched = {path.partition(".")[0] for path in changed} | {*changed}
    named = {"steps", "schedule", "optimizer.lr", "phases"}
    if "schedule" not in before or not touched & named:
        return None
    after = apply_sets(before, changed)
    steps, last = before["steps"], after["steps"]
    then = "" if begins == 0 else f"{_rate_text(before, begins)} at step {begins:,} -> "
    length = f"Steps {steps:,} -> {last:,}; learning" if steps != last else "Learning"
    words = (
        f"{length} rate {then}{_rate_text(after, begins + 1)} at step {begins + 1:,}, "
        f"{_rate_text(after, last)} at step {last:,}."
    )
    laid = _schedule(after).length(last)
    if laid >= last:
        return words
    again = option("--set", f"{_LENGTH}=null")
    return f"{words} The schedule keeps its {laid:,} steps; {again} lays it over all."


def _rate_text(config: ConfigDocument, step: int) -> str:
    return number_text(Curriculum.of(RunConfig.parse(config)).rate(step))


def _schedule(config: ConfigDocument) -> ScheduleConfig:
    return ScheduleConfig.of(Fields(config["schedule"], "the configuration"))
