"""Findings from a log: the scan's causes, explained, with what can be done about them."""

from __future__ import annotations

from collections.abc import Iterable

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.diagnosis.remedies import advice, patches
from trainer_runtime.core.diagnosis.signatures.explain import explain
from trainer_runtime.core.diagnosis.signatures.outcome import Outcome
from trainer_runtime.core.diagnosis.signatures.root_cause import Cause, conclude
from trainer_runtime.core.diagnosis.signatures.scan import Seen, SignatureScan
from trainer_runtime.core.diagnosis.signatures.signature import Strength
from trainer_runtime.core.protocol.finding import Finding, as_evidence, finding_id


def find(
    seen: Seen,
    outcome: Outcome | None = None,
    *,
    placement: int = 0,
    attempt: int = 0,
    config: ConfigDocument | None = None,
) -> list[Finding]:
    """What went wrong, the first cause first.

    `placement` and `attempt` name the log (0 for a file), `config` is the resolved config that
    patches are made for; without it there are none.
    """
    return [_finding(one, placement, attempt, config) for one in conclude(seen, outcome)]


def find_in(
    chunks: Iterable[bytes],
    outcome: Outcome | None = None,
    *,
    config: ConfigDocument | None = None,
) -> list[Finding]:
    """`find` over a whole log, given in any pieces."""
    scan = SignatureScan()
    for chunk in chunks:
        scan.feed(chunk)
    scan.finish()
    return find(scan.seen(), outcome, config=config)


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
            went_on=cause.went_on,
            passed=informs and cause.code == "nan_loss",
        ),
        patches=() if informs or cause.went_on else patches(cause.code, config),
        advice=() if informs else advice(cause.code, cause.slots),
        led_to=tuple(cause.led_to),
        slots=dict(cause.slots),
    )
