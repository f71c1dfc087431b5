"""Which attempt's steps count, where attempts overlap.

An attempt that starts at step S continues the run's history as it stood at S: what earlier attempts
did beyond S (points, checkpoints) is superseded by it, whether it was lost in a crash or rewound on
purpose.
"""

from __future__ import annotations

from collections.abc import Mapping


def is_live(attempt: int, step: int, started_at: Mapping[int, int]) -> bool:
    """Whether `step` of `attempt` still belongs to the run's history.

    `started_at`: the step each attempt started from, for those that have started.
    """
    return step <= live_until(attempt, started_at)


def live_until(attempt: int, started_at: Mapping[int, int]) -> float:
    """The last step of `attempt` that no later attempt has superseded; infinity if none has."""
    later = (step for number, step in started_at.items() if number > attempt)
    return min(later, default=float("inf"))
