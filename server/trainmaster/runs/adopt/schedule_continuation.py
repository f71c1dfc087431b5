"""The spec fields that continue a training's batch and schedule, derived from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.config import ConfigChanges, ConfigDocument
from trainer_runtime.core.config.lr_schedule import SCHEDULES, lr_factor
from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.files.foreign_output import FoundCheckpoint
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.figures import number_text, rounded
from trainmaster.plan.fields.training import ScheduleSpec
from trainmaster.runs.adopt.output_folder import Output
from trainmaster.settings.yaml12 import load_yaml

# Fields that shape the training; the spec's default where the folder doesn't record them.
_SHAPING = (
    "batch.tokens",
    "batch.micro_batch",
    "data.seq_len",
    "precision",
    "optimizer.lr",
    "optimizer.weight_decay",
    "optimizer.grad_clip",
    "schedule.kind",
    "schedule.warmup_steps",
    "eval.every_steps",
    "seed",
)
_OF_TEXTS = (None, "pretrain", "sft")
# Of the highest rate: below the first share a schedule has ended, and a continued training is
# warmed up to the second one (Ibrahim et al. 2024, arXiv 2403.08763).
_ENDED_SHARE, _REWARMED_SHARE = 0.05, 0.1
_USUAL = ScheduleSpec()


def fields_to_continue(
    output: Output, checkpoint: FoundCheckpoint, sets: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Dotted fields for the spec besides what the folder describes, and notes on them.

    `sets`: the user's own fields, which get no note.
    """
    fields_set = _given(sets)
    fields = {**output.found.described, **fields_set}
    batch, of_batch = _batch(fields, fields_set)
    rate, of_rate = _rate(output.found.described, fields, checkpoint, fields_set)
    return {**batch, **rate}, [*of_batch, *of_rate]


def assumed_defaults(
    output: Output, config: ConfigDocument, fixed_fields: Sequence[str]
) -> list[str]:
    """A note on the fields that neither folder nor user gives, with the plan's values.

    `fixed_fields`: the fields that were derived or given.
    """
    assumed = [field for field in _SHAPING if field not in {*output.found.described, *fixed_fields}]
    chosen = [
        f"{field} {value}" for field in assumed if (value := value_at(config, field)) is not None
    ]
    if not chosen:
        return []
    return [
        "Not in the folder, so the plan's choice, which may differ from what it was: "
        f"{', '.join(chosen)}. Give what you know with {option('--set')}."
    ]


def given_fields(sets: Sequence[str]) -> list[str]:
    """The fields that `--set` names."""
    return list(_given(sets))


def _given(sets: Sequence[str]) -> dict[str, Any]:
    pairs = (item.partition("=") for item in sets)
    return {path.strip(): load_yaml(value) for path, _, value in pairs}


def _batch(fields: ConfigChanges, fields_set: ConfigDocument) -> tuple[dict[str, Any], list[str]]:
    """A step of one micro-batch, without accumulation: Trainer's folders don't record more."""
    pieces, length = fields.get("batch.micro_batch"), fields.get("data.seq_len")
    if "batch.tokens" in fields or fields.get("method") not in _OF_TEXTS:
        return {}, []
    if not isinstance(pieces, int) or not isinstance(length, int) or pieces * length < 1:
        return {}, []
    tokens = pieces * length
    note = (
        f"batch.tokens is {tokens}: {pieces} sequences of {length}, one device without "
        "accumulation. Neither is in the folder: where there was more, "
        f"{option('--set', 'batch.tokens=N')}."
    )
    return {"batch.tokens": tokens}, [note]


def _rate(
    described: ConfigChanges,
    fields: ConfigChanges,
    checkpoint: FoundCheckpoint,
    fields_set: ConfigDocument,
) -> tuple[dict[str, Any], list[str]]:
    """The peak rate of the schedule that gives the next step the rate that it would have had;
    nothing where the folder's own schedule simply continues."""
    rate, highest = checkpoint.rate, described.get("optimizer.lr")
    steps, step = fields.get("steps"), checkpoint.resume_step
    if "optimizer.lr" in fields_set or _is_unchanged(described, fields):
        return {}, []
    if rate is None or not highest or not isinstance(steps, int) or steps <= step:
        return {}, []
    kind = fields.get("schedule.kind", _USUAL.kind)
    warmup = fields.get("schedule.warmup_steps", 0)
    ratio = fields.get("schedule.min_lr_ratio", _USUAL.min_lr_ratio)
    if kind not in SCHEDULES or not isinstance(warmup, int) or not isinstance(ratio, int | float):
        return {}, []
    next_rate, why = (
        rate,
        f"step {step} left the rate at {number_text(rate)}, and it continues from there",
    )
    if rate < _ENDED_SHARE * highest:
        next_rate = _REWARMED_SHARE * highest
        why = (
            f"its schedule had come to its end ({number_text(rate)} at step {step}), and the "
            "rate continues "
            f"from {number_text(next_rate)}, a tenth of its highest, {number_text(highest)}"
        )
    peak = rounded(next_rate / (lr_factor(kind, step + 1, steps, warmup, ratio) or 1.0))
    fields = {"optimizer.lr": peak, "schedule.kind": kind, "schedule.warmup_steps": warmup}
    return fields, [f"optimizer.lr is {peak:g} with schedule.kind {kind}: {why}."]


def _is_unchanged(described: ConfigChanges, fields: ConfigChanges) -> bool:
    """Whether the schedule is the folder's own, over as many steps."""
    names = ("steps", "schedule.kind", "schedule.warmup_steps", "schedule.min_lr_ratio")
    return all(name in described and fields[name] == described[name] for name in names)
