"""The policy on a rehearsal: when its trainer is killed, and when a program has shown enough.

A rehearsal takes the steps behind a checkpoint twice, in two processes: with equal losses, what was
saved is all that the training depends on.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol.journal import AttemptRecord
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import REHEARSED, REHEARSED_KILL

# Steps behind a checkpoint that are compared at least.
LEAST_REPEATED = 3


def rehearsed_end(
    config: RunConfig, attempts: Sequence[AttemptRecord], progress: Progress
) -> str | None:
    """What the newest attempt of a rehearsal is ended for: a kill once there is enough to repeat,
    or that a program continues behind the last step; None for nothing."""
    if config.rehearsal is None:
        return None
    if len(attempts) == 1 and step_to_repeat_from(progress) is not None:
        return REHEARSED_KILL
    if config.script is not None and progress.step > config.rehearsal.steps:
        return REHEARSED
    return None


def step_to_repeat_from(progress: Progress) -> int | None:
    """The newest verified checkpoint with enough steps behind it; None where there is none."""
    steps = [
        step
        for step, saved in progress.checkpoints.items()
        if saved.verified and 0 < step <= progress.step - LEAST_REPEATED
    ]
    return max(steps, default=None)
