"""How long a training still takes."""

from __future__ import annotations

from trainer_runtime.core.protocol.progress import Progress

# A step that takes this many times the usual, and longer than that, says nothing of the others.
_TIMES_USUAL = 10.0
_LEAST_S = 60.0


def eta_s(progress: Progress | None, now: float | None = None) -> float | None:
    """Seconds to the target step at the present pace; None while that isn't known, or where no step
    has come for long by `now`."""
    if progress is None or progress.step_time_s is None or progress.target_step is None:
        return None
    age_s = step_age_s(progress, now)
    if age_s is not None and age_s > max(_LEAST_S, _TIMES_USUAL * progress.step_time_s):
        return None
    return max(0, progress.target_step - progress.step) * progress.step_time_s


def step_age_s(progress: Progress | None, now: float | None) -> float | None:
    """Seconds since the newest step; None before the first."""
    if progress is None or progress.last_step_t is None or now is None:
        return None
    return max(0.0, now - progress.last_step_t)
