"""Patches of a ledger entry: its remedies, applied to the run's configuration and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.detectors.detector_context import DetectorContext
from trainer_runtime.core.diagnosis.detectors.ledger import LedgerEntry
from trainer_runtime.core.diagnosis.remedies import (
    REMEDIES,
    RUNGS,
    Remedy,
    Rung,
    value_at,
)
from trainer_runtime.core.frameworks import framework_of
from trainer_runtime.core.protocol.finding import Patch

_FIRST_STEPS = 20


def patches_for(entry: LedgerEntry, context: DetectorContext) -> tuple[Patch, ...]:
    """The patches of an entry's remedies, best first; none without a configuration."""
    if not framework_of(context.settings.config.get("framework")).is_patched:
        return ()
    made = (_patch(name, entry, context) for name in _ranked(entry, context))
    return tuple(patch for patch in made if patch is not None)


def _ranked(entry: LedgerEntry, context: DetectorContext) -> list[str]:
    """Its remedies, best first: early in a run from scratch the rate is at fault, not the data."""
    names = list(entry.remedies)
    early = max(_FIRST_STEPS, context.settings.warmup_steps or 0)
    by_rate, by_data = "rewind_halve_lr", "rewind_skip_data"
    if context.first_step == 0 and entry.onset <= early and {by_rate, by_data} <= set(names):
        names.remove(by_rate)
        names.insert(names.index(by_data), by_rate)
    return names


def _patch(name: str, entry: LedgerEntry, context: DetectorContext) -> Patch | None:
    remedy, config = REMEDIES[name], context.settings.config
    rung = RUNGS[remedy.rung] if remedy.rung is not None else None
    changes = rung.changes(config) if rung is not None else {}
    if remedy.rung is not None and not changes:
        return None
    resume_from: str | int = "latest"
    skip = None
    if remedy.rewinds:
        safe = context.safe_step(entry.onset)
        if safe is None and entry.severity != "critical":
            return None
        resume_from = "scratch" if safe is None else safe
        skip = _skip(entry, safe or 0, context) if remedy.skips else None
        if remedy.skips and skip is None:
            return None
    expected = {path: value_at(config, path) for path in changes}
    return Patch(name, changes, expected, _why(remedy, rung), resume_from, skip)


def _why(remedy: Remedy, rung: Rung | None) -> str:
    return " ".join(part for part in (remedy.why, rung.why if rung else "") if part)


def _skip(entry: LedgerEntry, safe: int, context: DetectorContext) -> Mapping[str, int] | None:
    """The data from the checkpoint's step to the last odd step."""
    settings = context.settings
    if settings.sequences_per_step is None:
        return None
    last = entry.values.get("last_step")
    bad = int(last) if isinstance(last, (int, float)) else entry.onset
    ends = max(bad, safe + 1)
    sequences = settings.sequences_before(ends) - settings.sequences_before(safe)
    return {"at_step": safe, "sequences": sequences}
