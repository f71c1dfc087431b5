"""The length of the training: steps from the spec's length; warm-up and limits."""

from __future__ import annotations

import math

from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.protocol.duration import format_duration, parse_duration
from trainer_runtime.core.protocol.figures import share_text, spoken_hours
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.checkpoint_interval import ceiling_s
from trainmaster.plan.decisions.estimate import HOUR_S
from trainmaster.plan.decisions.hyperparameters import Batch, warmup_steps
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.recipe_values import warn_of_warmup
from trainmaster.plan.decisions.recipes import Recipe
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_SHORTEST_LIMIT_S = 24 * HOUR_S
_LIMIT_FACTOR = 1.5
# Passes by the number of examples: below each, so many. InstructGPT's and Alpaca's choices.
_EPOCHS = ((1_000, 3), (10_000, 2))
_EPOCHS_SOURCE = (
    "Taori et al. 2023 (Alpaca): 3; Tunstall et al. 2023 (Zephyr): 1 to 3; Ouyang et al. 2022: 1 "
    "for rewards, which overfit after"
)


def choose_steps(
    spec: TrainingSpec, batch: Batch, method: Method, corpus: CorpusFacts, ledger: Ledger
) -> int:
    """Optimizer steps of a training without phases.

    Raises:
        PlanError: INVALID_VALUE, the number of examples is not known.
    """
    if isinstance(spec.tokens, int):
        steps = max(1, spec.tokens // batch.tokens)
        reason = f"{tokens_text(spec.tokens)} tokens at {batch.tokens:,} a step."
        ledger.decide("steps", steps, reason)
        return steps
    if spec.steps is not None:
        return spec.steps
    # The spec's own checks saw that one of the lengths is given.
    examples = _examples(batch, method, corpus)
    epochs = _epochs(spec, examples, ledger)
    steps = max(1, round(epochs * examples / batch.sequences))
    what = "sequences" if method.arguments.get("packing") else "examples"
    reason = f"{epochs:g} times {examples:,} {what} that train, {batch.sequences:,} a step."
    ledger.decide("steps", steps, reason)
    return steps


def tokens_text(count: int) -> str:
    """As a spec may write it, where that says it all: `1.5T`; else in full."""
    for unit, multiple in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if count >= multiple and count % (multiple // 1000) == 0:
            return f"{count / multiple:g}{unit}"
    return f"{count:,}"


def choose_warmup(spec: TrainingSpec, recipe: Recipe | None, steps: int, ledger: Ledger) -> int:
    """Steps of warm-up; `recipe`: of a large model, whose tuning takes a share of its own.

    Raises:
        PlanError: INVALID_VALUE, more than there are steps.
    """
    steps_given = spec.schedule.warmup_steps
    usual = None if recipe is None else recipe.usual("schedule.warmup_share")
    if recipe is not None and recipe.is_tuning and usual is not None and steps_given == "auto":
        warmup = max(1, round(float(usual.value) * steps))
        reason = f"{share_text(usual.value)} of {steps:,} steps, as is usual in tuning."
        ledger.decide("schedule.warmup_steps", warmup, reason, usual.source)
        return warmup
    warn_of_warmup(spec, recipe, steps, ledger)
    if not isinstance(steps_given, int):
        warmup = warmup_steps(steps)
        reason = f"2 % of {steps:,} steps, or a tenth up to 100; at most 2000."
        ledger.decide("schedule.warmup_steps", warmup, reason)
        return warmup
    if steps_given > steps:
        raise PlanError(
            "INVALID_VALUE",
            f"`schedule.warmup_steps` is {steps_given}, longer than the whole run of "
            f"{steps} steps.",
            f"Set schedule.warmup_steps to at most {steps}, or to auto.",
            field="schedule.warmup_steps",
        )
    return steps_given


def choose_checkpoint_interval(
    spec: TrainingSpec, hours: float | None, ledger: Ledger
) -> int | str:
    """Steps or a duration."""
    every = spec.checkpoint.every
    if isinstance(every, int):
        return every
    if every != "auto":
        # One whole number and unit, whatever was written: `1h30m` becomes `90m`.
        return format_duration(parse_duration(every))
    value = format_duration(ceiling_s(hours))
    length = "a length not known yet" if hours is None else f"about {spoken_hours(hours)}"
    reason = f"For a job of {length}; decided again by the trainer after 20 measured steps."
    ledger.decide("checkpoint.every", value, reason)
    return value


def choose_longest_runtime_s(spec: TrainingSpec, hours: float | None, ledger: Ledger) -> float:
    """Seconds after which the run is ended, over all its attempts."""
    if spec.limits.max_runtime != "auto":
        limit_s = parse_duration(spec.limits.max_runtime)
        if hours is not None and hours * HOUR_S > limit_s:
            ledger.warn(
                f"About {spoken_hours(hours)} are needed, but limits.max_runtime ends the run "
                "after "
                f"{spec.limits.max_runtime}."
            )
        return limit_s
    limit_s = max(_SHORTEST_LIMIT_S, math.ceil(_LIMIT_FACTOR * (hours or 0.0)) * HOUR_S)
    reason = "1.5 times the estimate, in whole hours, at least 24; over all attempts."
    ledger.decide("limits.max_runtime", format_duration(limit_s), reason)
    return limit_s


def _examples(batch: Batch, method: Method, corpus: CorpusFacts) -> int:
    """Those that train: packed into sequences, or the rows that are not held out."""
    share = 1.0 if corpus.validation else 1 - VALIDATION_SHARE
    if method.arguments.get("packing") and corpus.tokens:
        return max(1, round(corpus.tokens * share) // batch.seq_len)
    if not corpus.examples:
        raise PlanError(
            "INVALID_VALUE",
            "`method_args.epochs` is given, but the number of examples is not known before "
            "they are read.",
            "Give the length as steps instead.",
            field="method_args.epochs",
        )
    return max(1, round(corpus.examples * share))


def _epochs(spec: TrainingSpec, examples: int, ledger: Ledger) -> float:
    epochs_given = spec.method_args.get("epochs")
    if isinstance(epochs_given, int | float):
        return float(epochs_given)
    epochs = next((passes for below, passes in _EPOCHS if examples < below), 1)
    reason = f"{examples:,} examples: small sets take several passes, large ones overfit by them."
    ledger.decide("method_args.epochs", epochs, reason, _EPOCHS_SOURCE)
    return float(epochs)
