"""How long a training still takes."""

from __future__ import annotations

from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.progress import Progress, is_overdue


def eta_s(
    progress: Progress | None, now: float | None = None, curriculum: Curriculum | None = None
) -> float | None:
    """Seconds to the target step at the present pace; None while that isn't known, or where no step
    has come for long by `now`. `curriculum`: by which the steps to come may be larger or smaller.
    """
    if progress is None or progress.step_time_s is None or progress.target_step is None:
        return None
    if step_is_overdue(progress, now):
        return None
    remaining = max(0, progress.target_step - progress.step)
    if curriculum is None or curriculum.is_uniform or not remaining:
        return remaining * progress.step_time_s
    tokens = curriculum.tokens_before(progress.target_step)
    tokens -= curriculum.tokens_before(progress.step)
    return progress.step_time_s * tokens / curriculum.tokens(progress.step)


def step_is_overdue(progress: Progress | None, now: float | None) -> bool:
    """Whether no step has come for long by `now`, by the run's own pace."""
    if progress is None or progress.step_time_s is None:
        return False
    age_s = step_age_s(progress, now)
    return age_s is not None and is_overdue(age_s, progress.step_time_s)


def step_age_s(progress: Progress | None, now: float | None) -> float | None:
    """Seconds since the newest step; None before the first."""
    if progress is None or progress.last_step_t is None or now is None:
        return None
    return max(0.0, now - progress.last_step_t)
