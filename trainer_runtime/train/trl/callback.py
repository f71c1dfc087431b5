"""Keeps our promises inside TRL's trainers, which tell more of a step than Trainer does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from trainer_runtime.train.hf.callback import TrainmasterCallback
from trainer_runtime.train.loop.framework_run import FrameworkRun

_EVALUATION = "eval_"
_TOKENS = "num_tokens"
# What events tell in their own way: `step_time_s`.
_TOLD_OTHERWISE = ("step_time",)


class TrlCallback(TrainmasterCallback):
    """As Trainer's, with TRL's metrics under TRL's names; only `num_tokens` is our `tokens`.

    `epochs_per_step`: how much of the rows a step reads. Trainer is given the whole run's as one.
    """

    def __init__(self, attempt: FrameworkRun, epochs_per_step: float) -> None:
        super().__init__(attempt)
        self._epochs_per_step = epochs_per_step
        self._sources = [source.name for source in attempt.config.data.sources]

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        told = in_our_names(of_one_source(logs or {}, self._sources))
        if "epoch" in told:
            told["epoch"] = state.global_step * self._epochs_per_step
        super().on_log(args, state, control, told, **trained)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        told = in_our_names(of_one_source(metrics or {}, self._sources))
        super().on_evaluate(args, state, control, told, **trained)


def in_our_names(logs: Mapping[str, Any]) -> dict[str, Any]:
    """`tokens` of a step; an evaluation has none of its own, and TRL repeats the training's."""
    told = {name: value for name, value in logs.items() if not name.endswith(_TOLD_OTHERWISE)}
    told.pop(f"{_EVALUATION}{_TOKENS}", None)
    if _TOKENS in told:
        told["tokens"] = told.pop(_TOKENS)
    return told


def of_one_source(logs: Mapping[str, Any], sources: list[str]) -> dict[str, Any]:
    """TRL names its own values of an evaluation alike for every set: `eval_rewards/margins`.

    Of several sources they get the name of the one whose loss stands beside them.
    """
    if len(sources) > 1:
        for source in sources:
            prefix = f"{_EVALUATION}{source}_"
            if f"{prefix}loss" in logs:
                return {
                    name
                    if name.startswith(prefix) or not name.startswith(_EVALUATION)
                    else f"{prefix}{name.removeprefix(_EVALUATION)}": value
                    for name, value in logs.items()
                }
    return dict(logs)
