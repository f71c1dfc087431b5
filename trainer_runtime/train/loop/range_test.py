"""The end of a learning-rate range test: after its last step, or when its loss has diverged."""

from __future__ import annotations

from collections.abc import Callable

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.policy.range_test import RisingLoss
from trainer_runtime.train.attempt.nan_guard import NonFiniteError


class RangeTestOverError(Exception):
    """A range test has seen what it is for; it leaves no checkpoint and no model."""


class RangeTest:
    """Follows the recorded losses; does nothing in another run."""

    def __init__(self, config: RunConfig) -> None:
        self._steps = config.steps
        self._rising = RisingLoss() if config.schedule.is_range_test else None

    def take(self, step: int, loss: float) -> None:
        """Raises: RangeTestOverError: nothing more is to be seen after this step's loss."""
        if self._rising is None:
            return
        if self._rising.has_diverged(loss):
            raise RangeTestOverError(f"the range test is over: the loss diverged by step {step}")
        if step >= self._steps:
            raise RangeTestOverError(f"the range test is over after its {step} steps")


def ran_whole(config: RunConfig, train: Callable[[], None]) -> bool:
    """Runs a training; False where it was a range test that is over."""
    try:
        train()
    except (RangeTestOverError, NonFiniteError) as error:
        if not config.schedule.is_range_test:
            raise
        print(error if isinstance(error, RangeTestOverError) else _DIVERGED, flush=True)
        return False
    return True


_DIVERGED = "the range test is over: the loss diverged"
