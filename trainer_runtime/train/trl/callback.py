"""Connects TRL's trainers, which log more of a step than Trainer does, to a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from trainer_runtime.train.hf.callback import TrainmasterCallback
from trainer_runtime.train.loop.framework_run import FrameworkRun

RowsOfPhase = Callable[[int], Sequence[int]]

_EVALUATION = "eval_"
_TOKENS = "num_tokens"
# Logged by events in their own way: `step_time_s`.
_LOGGED_OTHERWISE = ("step_time",)


class TrlCallback(TrainmasterCallback):
    """As Trainer's, with TRL's metrics under TRL's names; only `num_tokens` is our `tokens`.

    `epochs_per_step`: the share of the rows that a step reads. Trainer gets the whole run's rows as
    one epoch. `rows_of_phase`: how many of them are of each source in the phase that ends with a
    step.
    """

    def __init__(
        self, attempt: FrameworkRun, epochs_per_step: float, rows_of_phase: RowsOfPhase
    ) -> None:
        super().__init__(attempt)
        self._epochs_per_step = epochs_per_step
        self._rows_of_phase = rows_of_phase
        self._sources = [source.name for source in attempt.config.data.evaluated]

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        logged = in_our_names(of_one_source(logs or {}, self._sources))
        if "epoch" in logged:
            logged["epoch"] = state.global_step * self._epochs_per_step
        super().on_log(args, state, control, logged, **trained)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **trained: Any,
    ) -> None:
        logged = in_our_names(of_one_source(metrics or {}, self._sources))
        super().on_evaluate(args, state, control, logged, **trained)

    def _of_ended_phase(self) -> Sequence[int]:
        return self._rows_of_phase(self._attempt.step)


def in_our_names(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Logs under our names; an evaluation has no `tokens`, where TRL repeats the training's."""
    logged = {name: value for name, value in logs.items() if not name.endswith(_LOGGED_OTHERWISE)}
    logged.pop(f"{_EVALUATION}{_TOKENS}", None)
    if _TOKENS in logged:
        logged["tokens"] = logged.pop(_TOKENS)
    return logged


def of_one_source(logs: Mapping[str, Any], sources: list[str]) -> dict[str, Any]:
    """Renames evaluation values by source: TRL uses the same names for every set.

    With several sources, `eval_rewards/margins` gets the source whose loss is logged with it.
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
