"""Findings: what the box's guard and the checkpoint index say is wrong with a run."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.finding import Severity, finding_id
from trainmaster.view import RunView

_SAVE_FAILED = "checkpoint_failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is a hash of placement, attempt, code and onset: every side names it alike."""

    id: str
    code: str
    severity: Severity
    step: int | None


def open_findings(view: RunView) -> list[Finding]:
    """What is wrong with the newest attempt, and with the checkpoints that stand."""
    found = []
    placement = view.run.placement
    for progress in view.attempts[-1:]:
        verified = progress.verified_step or -1
        for warning in progress.warnings:
            code, step = str(warning["code"]), warning.get("step")
            if code == _SAVE_FAILED and (step or 0) < verified:
                continue  # a later one has stood the check
            severity: Severity = "warning" if code == _SAVE_FAILED else "critical"
            found.append(_finding(placement, progress.attempt, code, severity, step))
    for entry in view.index.entries:
        if entry.verified is False:
            found.append(
                _finding(placement, entry.attempt, "checkpoint_corrupt", "warning", entry.step)
            )
    return found


def _finding(
    placement: int, attempt: int, code: str, severity: Severity, step: int | None
) -> Finding:
    return Finding(finding_id(placement, attempt, code, step), code, severity, step)
