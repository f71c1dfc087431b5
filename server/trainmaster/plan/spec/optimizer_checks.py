"""Checks the values of optimizer and schedule against what these can do."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.config.lr_schedule import RANGE_TEST
from trainer_runtime.core.config.optimizers import OPTIMIZERS, OptimizerRecord
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.fields.training import OptimizerSpec
from trainmaster.plan.frameworks import method_of

# Methods whose loss is the error that training is to lower.
_WITH_AN_ERROR = ("pretrain", "sft")
_PARTED = ("fsdp", "zero1", "zero2", "zero3", "zero3_offload")


def optimizer_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Values that the optimizer has not, or can't do with the strategy."""
    optimizer = spec.optimizer
    if optimizer.name not in ("auto", *OPTIMIZERS):
        return  # which is refused as not built
    yield from _value_problems(optimizer)
    yield from _strategy_problems(spec)
    if spec.checkpoint.ema is not None and _record(optimizer).averages:
        yield wrong_value(
            "checkpoint.ema",
            f"is given, but `optimizer.name` {optimizer.name} averages the weights itself.",
            "Remove it, or take another optimizer.",
        )
    if optimizer.label_smoothing and optimizer.focal_gamma:
        yield wrong_value(
            "optimizer.focal_gamma",
            "is given beside `optimizer.label_smoothing`: the one rests on how sure the model is, "
            "which the other holds down.",
            "Keep one of them.",
        )
    if optimizer.clip == "agc" and "grad_clip" not in optimizer.model_fields_set:
        yield Problem(
            "MISSING_FIELD",
            "optimizer.grad_clip",
            "`optimizer.grad_clip` is missing: adaptive clipping limits a row's gradient to that "
            "share of its weights.",
            "Give it, 0.01 as in Brock et al. 2021; or set optimizer.clip to norm.",
        )


def _value_problems(optimizer: OptimizerSpec) -> Iterator[Problem]:
    record = _record(optimizer)
    if isinstance(optimizer.betas, list) and len(optimizer.betas) != 2:
        yield wrong_value(
            "optimizer.betas",
            f"holds {len(optimizer.betas)} numbers.",
            "Give two, for example [0.9, 0.95].",
        )
    for name in ("betas", "momentum", "eps"):
        if getattr(optimizer, name) != "auto" and getattr(record, name) is None:
            able = [of for of, has in OPTIMIZERS.items() if getattr(has, name) is not None]
            yield wrong_value(
                f"optimizer.{name}",
                f"is given, but {optimizer.name} has none.",
                f"Remove it, or set optimizer.name to one of {', '.join(able)}.",
            )


def _strategy_problems(spec: TrainingSpec) -> Iterator[Problem]:
    strategy, optimizer = spec.compute.strategy, spec.optimizer
    if strategy not in _PARTED:
        return
    record = _record(optimizer)
    if strategy not in record.parted:
        able = [name for name, of in OPTIMIZERS.items() if strategy in of.parted]
        yield wrong_value(
            "optimizer.name",
            f"is {optimizer.name}, which can't train under `compute.strategy` {strategy}: "
            f"{record.lacks}.",
            f"Set it to one of {', '.join(able)}; or set compute.strategy to ddp or auto.",
        )
    if optimizer.clip == "agc":
        yield wrong_value(
            "optimizer.clip",
            f"is agc, which compares whole rows, of which `compute.strategy` {strategy} gives a "
            "rank parts.",
            "Set it to norm or value; or set compute.strategy to ddp or auto.",
        )


def _record(optimizer: OptimizerSpec) -> OptimizerRecord:
    """`auto` accepts what AdamW has: it stands for that, or for what has all of it and more."""
    return OPTIMIZERS["adamw" if optimizer.name == "auto" else optimizer.name]


def schedule_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Values of another shape than the schedule has; a range test of what has none."""
    schedule = spec.schedule
    yield from _range_test_problems(spec)
    for name, kind, usual in (("power", "polynomial", 1.0), ("cycles", "cosine_restarts", 1)):
        value = getattr(schedule, name)
        if value != usual and schedule.kind != kind:
            yield wrong_value(
                f"schedule.{name}",
                f"is {value}, which only `schedule.kind` {kind} has, not {schedule.kind}.",
                f"Set schedule.kind to {kind}, or remove schedule.{name}.",
            )


def _range_test_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if spec.schedule.kind != RANGE_TEST:
        return
    method = method_of(spec)
    if method not in _WITH_AN_ERROR:
        yield wrong_value(
            "method",
            f"is {method}, whose loss does not say how well it learns, so that no learning rate "
            "can be read from it.",
            "Compare short runs with several values of optimizer.lr; a range test takes one "
            f"of {', '.join(_WITH_AN_ERROR)}.",
        )
    if spec.phases or spec.batch.ramp:
        yield wrong_value(
            "phases" if spec.phases else "batch.ramp",
            "is given, and a range test has one mix and one batch.",
            "Remove it.",
        )
