"""Findings from a scanned log: its causes with explanation, advice and patches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.diagnosis.kinds import Kind
from trainer_runtime.core.diagnosis.remedies import advice, patches
from trainer_runtime.core.diagnosis.signatures.cause_sources import Cause
from trainer_runtime.core.diagnosis.signatures.explain import explain
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.root_cause import root_causes
from trainer_runtime.core.diagnosis.signatures.scan import ScanResult, SignatureScan
from trainer_runtime.core.diagnosis.signatures.signature import Strength
from trainer_runtime.core.diagnosis.signatures.unknown_error import says_remedy
from trainer_runtime.core.protocol.finding import Finding, as_evidence, finding_id


def find(
    result: ScanResult,
    outcome: Outcome | None = None,
    *,
    placement: int = 0,
    attempt: int = 0,
    config: ConfigDocument | None = None,
    own: Sequence[Kind] = (),
) -> list[Finding]:
    """The findings of a log, root cause first.

    `placement` and `attempt` identify the log (0 for a file). `config` is the resolved
    configuration that patches are made for; without it there are none. `own`: the kinds that were
    tried beside the catalogue's.
    """
    findings = [
        _finding(cause, placement, attempt, config) for cause in root_causes(result, outcome)
    ]
    return [*map(partial(_in_own_words, kinds={kind.code: kind for kind in own}), findings)]


def find_in(
    chunks: Iterable[bytes],
    outcome: Outcome | None = None,
    *,
    config: ConfigDocument | None = None,
    own: Sequence[Kind] = (),
) -> list[Finding]:
    """`find` for a whole log, given in pieces of any size."""
    scan = SignatureScan(own=own)
    for chunk in chunks:
        scan.feed(chunk)
    scan.finish()
    return find(scan.result(), outcome, config=config, own=own)


def _in_own_words(finding: Finding, kinds: Mapping[str, Kind]) -> Finding:
    """The finding of a user's kind with the words of its row."""
    kind = kinds.get(finding.code)
    if kind is None:
        return finding
    explanation = " ".join(filter(None, (kind.says, finding.explanation)))
    return replace(finding, explanation=explanation, advice=kind.advice)


def _finding(cause: Cause, placement: int, attempt: int, config: ConfigDocument | None) -> Finding:
    onset = cause.step if cause.step is not None else f"@{cause.onset}"
    informs = cause.severity == "info"
    return Finding(
        id=finding_id(placement, attempt, cause.code, onset),
        code=cause.code,
        severity=cause.severity,
        confidence=cause.confidence,
        step=cause.step,
        evidence=as_evidence(cause.lines),
        explanation=explain(
            cause.code,
            cause.slots,
            led_to=cause.led_to,
            guessed=not cause.lines and cause.strength is Strength.GUESSED,
            likely=cause.strength is not Strength.STATED,
            continued=cause.continued,
            passed=informs and cause.code == "nan_loss",
            phase=cause.phase,
            says_remedy=cause.code == "unknown_error" and says_remedy(cause.lines),
        ),
        patches=() if informs or cause.continued else patches(cause.code, config),
        advice=() if informs else advice(cause.code, cause.slots, cause.phase),
        led_to=tuple(cause.led_to),
        slots=dict(cause.slots),
    )
