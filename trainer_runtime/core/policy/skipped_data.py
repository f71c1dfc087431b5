"""The data that a rewind leaves out. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.config import RunConfig, Skip
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.progress import Progress


def is_skipped(config: RunConfig, skip: Mapping[str, int]) -> bool:
    """Whether exactly this data is left out already."""
    return Skip(skip["at_step"], skip["sequences"]) in config.data.skip


def skip_to_after(progress: Progress, restart_step: int, config: RunConfig) -> Mapping[str, int]:
    """The data from `restart_step` to behind the step that the trainer has warned of last."""
    bad_step = max(
        (warning.step for warning in progress.warnings if warning.step),
        default=progress.step,
    )
    steps = max(1, bad_step - restart_step)
    curriculum = Curriculum.of(config)
    sequences = curriculum.sequences_before(restart_step + steps)
    sequences -= curriculum.sequences_before(restart_step)
    planned = config.derived.sequences_per_step
    if curriculum.is_uniform and planned:
        sequences = steps * planned
    return {"at_step": restart_step, "sequences": sequences}
