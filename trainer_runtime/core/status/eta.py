"""How long a training still takes."""

from __future__ import annotations

from trainer_runtime.core.protocol.progress import Progress


def eta_s(progress: Progress | None) -> float | None:
    """Seconds to the target step at the present pace; None while that isn't known."""
    if progress is None or progress.step_time_s is None or progress.target_step is None:
        return None
    return max(0, progress.target_step - progress.step) * progress.step_time_s
