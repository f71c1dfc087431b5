"""Patches of a sighting: its remedies, made for the run's configuration and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.ledger import Sighting
from trainer_runtime.core.diagnosis.remedies import (
    FRAMEWORKS,
    REMEDIES,
    RUNGS,
    Remedy,
    Rung,
    value_at,
)
from trainer_runtime.core.protocol.finding import Patch

_FIRST_STEPS = 20


def patches_for(found: Sighting, board: Board) -> tuple[Patch, ...]:
    """The patches of a sighting's remedies, best first; without a configuration none."""
    if board.settings.config.get("framework") not in FRAMEWORKS:
        return ()
    made = (_patch(name, found, board) for name in _ranked(found, board))
    return tuple(patch for patch in made if patch is not None)


def _ranked(found: Sighting, board: Board) -> list[str]:
    """Its remedies, best first: of a start from scratch it is the rate that fails, not the data."""
    names = list(found.remedies)
    early = max(_FIRST_STEPS, board.settings.warmup_steps or 0)
    by_rate, by_data = "rewind_halve_lr", "rewind_skip_data"
    if board.first_step == 0 and found.onset <= early and {by_rate, by_data} <= set(names):
        names.remove(by_rate)
        names.insert(names.index(by_data), by_rate)
    return names


def _patch(name: str, found: Sighting, board: Board) -> Patch | None:
    remedy, config = REMEDIES[name], board.settings.config
    rung = RUNGS[remedy.rung] if remedy.rung is not None else None
    changes = rung.changes(config) if rung is not None else {}
    if remedy.rung is not None and not changes:
        return None
    resume_from: str | int = "latest"
    skip = None
    if remedy.rewinds:
        safe = board.safe_step(found.onset)
        if safe is None and found.severity != "critical":
            return None
        resume_from = "scratch" if safe is None else safe
        skip = _skip(found, safe or 0, board) if remedy.skips else None
        if remedy.skips and skip is None:
            return None
    expected = {path: value_at(config, path) for path in changes}
    return Patch(name, changes, expected, _why(remedy, rung), resume_from, skip)


def _why(remedy: Remedy, rung: Rung | None) -> str:
    return " ".join(part for part in (remedy.why, rung.why if rung else "") if part)


def _skip(found: Sighting, safe: int, board: Board) -> Mapping[str, int] | None:
    """From the checkpoint's step to the last odd one: all that data is left out."""
    per_step = board.settings.sequences_per_step
    if per_step is None:
        return None
    last = found.values.get("last_step")
    bad = int(last) if isinstance(last, (int, float)) else found.onset
    return {"at_step": safe, "sequences": max(1, bad - safe) * per_step}
