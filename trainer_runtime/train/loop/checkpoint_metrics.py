"""The metrics in a checkpoint's manifest, by which the best checkpoints are chosen."""

from __future__ import annotations

from collections.abc import Mapping

# Of the weights that `checkpoint.ema` averages.
VAL_LOSS_EMA = "val_loss_ema"
_VALIDATION_LOSSES = ("val_loss", "val_perplexity", VAL_LOSS_EMA)


class CheckpointMetrics:
    """Collects the metrics of the current step; those of earlier steps are dropped."""

    def __init__(self, best_by: str) -> None:
        """`best_by`: the metric by which the best checkpoints are chosen, `checkpoint.metric`."""
        self._best_by = best_by
        self._step: int | None = None
        self._values: dict[str, float] = {}

    def add_step(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the training loss from the values of a finished step, if they have one."""
        self._add(step, {name: value for name, value in values.items() if name == "loss"})

    def add_evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the validation losses and the `best_by` metric from an evaluation after `step`."""
        self._add(step, {name: value for name, value in values.items() if self._is_kept(name)})

    def at(self, step: int) -> dict[str, float]:
        """The metrics measured at this very step."""
        return dict(self._values) if self._step == step else {}

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        if self._step != step:
            self._step, self._values = step, {}
        self._values |= values

    def _is_kept(self, name: str) -> bool:
        return name.partition("/")[0] in _VALIDATION_LOSSES or name == self._best_by
