"""The findings about data of a run's host that was not taken in."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.finding import Finding, Severity, as_evidence, finding_id
from trainmaster.store.refusals import HOST_DATA_REFUSED, MIRROR_QUOTA
from trainmaster.sync.run_view import RunView

REFUSED = {
    HOST_DATA_REFUSED: "The host sent data that is invalid or beyond the limits.",
    MIRROR_QUOTA: "The copy of the run's files on this machine has reached its quota.",
}
REFUSED_ADVICE = {
    HOST_DATA_REFUSED: (
        "Find out what wrote to the run's folder on its host: the runtime never writes such data.",
        f"If the run is quarantined, {command('replay', 'RUN')} reads it again.",
    ),
    MIRROR_QUOTA: (
        "Make the log shorter, or raise `mirror.run_gib` or `mirror.total_gib` in the settings; "
        f"{command('replay', 'RUN')} reads it again.",
    ),
}
_QUARANTINED = "It is not read any more, and keeps its last known state."
_LEFT_OUT = "The lines were left out; the rest is read."


def refused_data(view: RunView) -> Iterator[Finding]:
    """One for a quarantine, one for lines that were left out."""
    held = view.refused.quarantine
    if held is not None:
        yield _finding(view, held.code, "critical", _QUARANTINED, [held.reason])
    if view.refused.lines and (held is None or held.code != HOST_DATA_REFUSED):
        texts = [
            f"{refused.name}: {refused.lines} lines; {refused.reason}"
            for refused in view.refused.lines
        ]
        yield _finding(view, HOST_DATA_REFUSED, "warning", _LEFT_OUT, texts)


def _finding(
    view: RunView, code: str, severity: Severity, consequence: str, evidence: list[str]
) -> Finding:
    return Finding(
        id=finding_id(view.run.placement, view.attempt, code, None),
        code=code,
        severity=severity,
        confidence=1.0,
        step=None,
        evidence=as_evidence(text.encode(errors="replace") for text in evidence),
        explanation=f"{REFUSED[code]} {consequence}",
        advice=REFUSED_ADVICE[code],
    )
