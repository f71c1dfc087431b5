"""Which attempt's steps count, where attempts overlap.

An attempt that starts at step S from a checkpoint continues the history that led to the checkpoint.
What other attempts did, and what its own predecessors did beyond S (points, checkpoints), is
superseded by it, whether it was lost in a crash or rewound on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.progress import Progress


@dataclass(frozen=True, slots=True)
class Start:
    """An attempt that has started at `step`.

    `saved_by`: the attempt that had saved its checkpoint; None where it had none or that is not
    known, and then it continues the attempt before it.
    """

    attempt: int
    step: int
    saved_by: int | None = None


class Lineage:
    """The attempts that a run's newest attempt continues, each up to its last step that counts."""

    def __init__(self, starts: Iterable[Start]) -> None:
        self._starts = sorted(starts, key=lambda start: start.attempt)
        self._until: dict[int, float] = {}
        histories: dict[int, dict[int, float]] = {}
        for start in self._starts:
            before = histories.get(start.saved_by or 0, self._until)
            continued = {number: min(until, start.step) for number, until in before.items()}
            self._until = histories[start.attempt] = {**continued, start.attempt: math.inf}

    def live_until(self, attempt: int) -> float:
        """The last step of `attempt` that counts; infinity if no later attempt superseded any."""
        if attempt in self._until:
            return self._until[attempt]
        own = next((start.step for start in self._starts if start.attempt == attempt), math.inf)
        later = [start.step for start in self._starts if start.attempt > attempt]
        # One that was left behind counts up to its own start, and no further.
        return min([own, *later])

    def is_live(self, attempt: int, step: int) -> bool:
        """Whether `step` of `attempt` still belongs to the run's history."""
        return step <= self.live_until(attempt)


def lineage_of(attempts: Sequence[Progress]) -> Lineage:
    """The lineage of a run's attempts, as their events report their starts."""
    return Lineage(
        Start(progress.attempt, progress.started_at_step, progress.saved_by)
        for progress in attempts
        if progress.started_at_step is not None
    )
