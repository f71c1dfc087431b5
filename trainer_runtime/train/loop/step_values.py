"""What is recorded of a framework's step besides what the framework logs of it."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.train.attempt.device import peak_memory
from trainer_runtime.train.attempt.objective import Objective
from trainer_runtime.train.loop.speed import Cost, StepClock


class StepValues:
    """Terms of the objective, clipping, tokens, speed and memory, step by step."""

    def __init__(
        self, curriculum: Curriculum, objective: Objective, clock: StepClock, cost: Cost
    ) -> None:
        self._curriculum, self._objective = curriculum, objective
        self._clock, self._cost = clock, cost
        self._tokens: float | None = None

    def end_step(self, step: int, values: Mapping[str, float], max_norm: float) -> dict[str, float]:
        """All values of the step that has just ended; `values`: the framework's. Gradients are
        clipped to `max_norm`, 0 where they are not."""
        step_time_s, data_time_s = self._clock.step_ended()
        recorded = {**values, **{name: of.item() for name, of in self._objective.take().items()}}
        norm = recorded.get("grad_norm")
        if norm is not None:
            recorded["clip_fraction"] = float(0.0 < max_norm < norm)
        recorded.setdefault("tokens", self._curriculum.tokens_before(step))
        tokens = self._tokens_of_step(step, recorded["tokens"])
        return recorded | self._cost.speed(step_time_s, data_time_s, tokens) | peak_memory()

    def _tokens_of_step(self, step: int, tokens: float) -> float:
        """The tokens counted since the last step; for the first step the planned number."""
        before, self._tokens = self._tokens, tokens
        return self._curriculum.tokens(step) if before is None else tokens - before
