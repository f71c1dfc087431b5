"""Where a run stands in its curriculum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum
from trainer_runtime.core.protocol.progress import Progress


@dataclass(frozen=True, slots=True)
class PhaseState:
    """The phase of the step that comes, the `number`-th of `count`, up to the step `ends`.

    `verdicts`: of the phases that have ended, in words, by name.
    """

    name: str
    number: int
    count: int
    ends: int
    verdicts: Mapping[str, str]

    @property
    def words(self) -> str:
        """As a person reads it."""
        verdicts = [f"; {name} {verdict}" for name, verdict in self.verdicts.items()]
        return f"{self.name} ({self.number} of {self.count}), to step {self.ends:,}" + "".join(
            verdicts
        )


def phase_state(config: RunConfig, attempts: Sequence[Progress]) -> PhaseState | None:
    """None for a run without phases, or one that has not come to its start."""
    curriculum, newest = Curriculum.of(config), attempts[-1] if attempts else None
    if not curriculum.has_phases or newest is None or newest.started_at_step is None:
        return None
    phase = curriculum.phase_at(min(newest.step + 1, config.steps))
    judged = {name: text for progress in attempts for name, text in progress.verdicts.items()}
    verdicts = {of.name: judged[of.name] for of in curriculum.phases if of.name in judged}
    number = curriculum.phases.index(phase) + 1
    return PhaseState(phase.name, number, len(curriculum.phases), phase.ends, verdicts)
