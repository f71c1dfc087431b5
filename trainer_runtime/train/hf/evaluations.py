"""Evaluations by Trainer, under our names, and those of averaged weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_runtime.train.loop.checkpoint_metrics import VAL_LOSS_EMA
from trainer_runtime.train.loop.framework_run import FrameworkRun

EVALUATION = "eval_"
# Timings of an evaluation, which the event has in its own field; the epoch is the step's.
_OF_THE_CLOCK = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


def losses_of_averages(trainer: Any, attempt: FrameworkRun) -> dict[str, float]:
    """`val_loss_ema`: the held-out loss of the averaged weights, if they are kept, which reaches no
    logger of Trainer's."""
    with attempt.average.in_model() as is_averaged:
        if not is_averaged:
            return {}
        sets = trainer.eval_dataset
        losses = {}
        for source, held_out in (sets if isinstance(sets, dict) else {"": sets}).items():
            batches = trainer.get_eval_dataloader(held_out)
            evaluated = trainer.evaluation_loop(batches, "averages", prediction_loss_only=True)
            losses[source] = evaluated.metrics[f"{EVALUATION}loss"]
    weights = {source.name: source.weight for source in attempt.config.data.evaluated}
    if len(losses) == 1:
        return {VAL_LOSS_EMA: next(iter(losses.values()))}
    total = sum(weights[source] for source in losses)
    return {VAL_LOSS_EMA: sum(weights[of] * loss for of, loss in losses.items()) / total}


def evaluation_values(
    logged: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """The values of an evaluation by Trainer under our names; `weights` by source.

    `eval_loss` becomes `val_loss`; a source's own `eval_<source>_loss` becomes `val_loss/<source>`,
    and `val_loss` is then the weighted mean of the sources. Other values are renamed the same way.
    """
    values: dict[str, float] = {}
    for name, value in logged.items():
        if not name.startswith(EVALUATION) or name.endswith(_OF_THE_CLOCK):
            continue
        rest = name.removeprefix(EVALUATION)
        sources = [source for source in weights if rest.startswith(f"{source}_")]
        if sources:
            source = max(sources, key=len)
            values[f"val_{rest.removeprefix(f'{source}_')}/{source}"] = value
        else:
            values[f"val_{rest}"] = value
    return _means(values, weights) | values


def _means(values: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """The weighted means of values that are given by source, as `val_loss/<source>`."""
    means = {}
    for name in {key.rpartition("/")[0]: None for key in values if "/" in key}:
        of_sources = {of: values[key] for of in weights if (key := f"{name}/{of}") in values}
        if of_sources:
            total = sum(weights[of] for of in of_sources)
            means[name] = sum(weights[of] * value for of, value in of_sources.items()) / total
    return means
