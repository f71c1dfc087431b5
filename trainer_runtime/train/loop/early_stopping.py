"""Ends a training before its last step, once its evaluations no longer improve."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainer_runtime.core.config.early_stopping import Improvement
from trainer_runtime.train.attempt.config import RunConfig

Emit = Callable[..., None]


class EarlyStopping:
    """Follows the evaluations of one attempt; does nothing without `eval.early_stopping`.

    `target` is the step that the training goes to.
    """

    def __init__(self, config: RunConfig, emit: Emit) -> None:
        self._rule = config.evaluation.early_stopping
        self._emit = emit
        self._improvement = Improvement()
        self.target = config.steps

    def begin(self, step: int, metrics: Mapping[str, float], *, by_user: bool) -> None:
        """Takes up a run of which `step` steps are done, by the metrics of that step's checkpoint.

        `by_user`: somebody has resumed it, and it gets its patience again.
        """
        self._improvement = Improvement.of_metrics(metrics)
        if self._is_over and by_user:
            self._improvement = Improvement(self._improvement.best, self._improvement.best_step)
        elif self._is_over:
            self.target = min(step, self.target)

    def evaluated(self, step: int, values: Mapping[str, float]) -> bool:
        """Takes the values of an evaluation after `step` steps; whether the training ends there."""
        value = None if self._rule is None else values.get(self._rule.metric)
        if self._rule is not None and value is not None:
            self._improvement = self._improvement.after(self._rule, step, value)
        return self._is_over and step < self.target

    def end_at(self, step: int) -> None:
        """Ends the training after this step."""
        self.target = step
        self.report()

    def report(self) -> None:
        """Records the end, where it is before the last step of the configuration."""
        assert self._rule is not None
        self._emit(
            "target",
            target_step=self.target,
            stopped_early={
                "metric": self._rule.metric,
                "best": self._improvement.best,
                "best_step": self._improvement.best_step,
                "evaluations": self._improvement.waited,
            },
        )

    def is_best(self, step: int) -> bool:
        """Whether the evaluation after this step was the best so far, so that it is saved."""
        improvement = self._improvement
        return improvement.best is not None and improvement.best_step == step

    @property
    def checkpoint_metrics(self) -> dict[str, float]:
        """What a checkpoint of now records beside its own metrics."""
        return self._improvement.metrics

    @property
    def _is_over(self) -> bool:
        return self._rule is not None and self._improvement.waited >= self._rule.patience
