"""What follows from a phase that has ended without its success, by its `on_miss`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.curriculum import Curriculum, Phase

# Then the run stops: what two tries haven't brought, a third rarely does.
MOST_TRIES = 2
_RATE_FACTOR = 0.5


@dataclass(frozen=True, slots=True)
class MissedPhase:
    """The next attempt: what it changes, where it resumes, and that in words."""

    rule: str
    what: str
    set: Mapping[str, object]
    resume_from: str | int


def missed_phase(config: RunConfig, name: str | None) -> MissedPhase | None:
    """The next attempt after the phase of this name was missed; None where the run is to stop."""
    phase = next((phase for phase in Curriculum.of(config).phases if phase.name == name), None)
    if phase is None or phase.config.tries >= MOST_TRIES:
        return None
    tries = {f"phases.{phase.name}.tries": phase.config.tries + 1}
    if phase.config.on_miss == "extend":
        return _extended(phase, config, tries)
    if phase.config.on_miss == "rollback":
        return _rolled_back(phase, tries)
    return None


def _extended(phase: Phase, config: RunConfig, tries: Mapping[str, object]) -> MissedPhase:
    """Half of what it was planned with: the first extension makes a half more of the steps."""
    planned = phase.config.steps * 2 // (2 + phase.config.tries)
    more = max(1, planned // 2)
    changes = {f"phases.{phase.name}.steps": phase.config.steps + more}
    total = {"steps": config.steps + more}
    return MissedPhase("extend", f"{more} more steps", {**changes, **total, **tries}, "latest")


def _rolled_back(phase: Phase, tries: Mapping[str, object]) -> MissedPhase:
    scale = phase.config.lr_scale * _RATE_FACTOR
    changes = {f"phases.{phase.name}.lr_scale": scale, **tries}
    start: str | int = phase.begins or "scratch"
    what = f"again from step {phase.begins} at {scale:g} times its learning rate"
    return MissedPhase("rollback", what, changes, start)
