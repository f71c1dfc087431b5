"""What `diagnose` answers: findings, the first cause first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from trainer_runtime.core.finding import Finding, Patch
from trainmaster.answers import Answer


class PatchAnswer(Answer):
    """One change that `resume --apply FINDING:PATCH` makes.

    A value of null in `set` sets the field to null.
    """

    id: str
    set: dict[str, Any]
    expected: dict[str, Any] = Field(
        description="what the fields hold now; a config that holds something else refuses the patch"
    )
    from_: str | int = Field(alias="from", description="where the training resumes")
    skip: dict[str, int] | None = None
    keeps_batch: bool = Field(description="an optimizer step sees as many tokens as before")
    why: str


class FindingAnswer(Answer):
    """One diagnosis. Only `evidence` holds text of the log, which anybody may have written."""

    id: str
    code: str
    severity: Literal["info", "warning", "critical"]
    confidence: float
    step: int | None = None
    evidence: list[str]
    explanation: str
    advice: list[str]
    led_to: list[str] = Field(description="codes of the symptoms that this cause explains")
    patches: list[PatchAnswer]


class DiagnosisAnswer(Answer):
    """Findings of a run or a file; none where nothing is wrong.

    `read_bytes` is how much of a log was read for it.
    """

    findings: list[FindingAnswer]
    read_bytes: int | None = None
    next_step: str | None = None


def answer_of(findings: Iterable[Finding], read_bytes: int | None = None) -> DiagnosisAnswer:
    """The answer that holds `findings`, in their order."""
    return DiagnosisAnswer(
        findings=[_finding(one) for one in findings],
        read_bytes=read_bytes,
    )


def _finding(finding: Finding) -> FindingAnswer:
    return FindingAnswer(
        id=finding.id,
        code=finding.code,
        severity=finding.severity,
        confidence=finding.confidence,
        step=finding.step,
        evidence=list(finding.evidence),
        explanation=finding.explanation,
        advice=list(finding.advice),
        led_to=list(finding.led_to),
        patches=[_patch(one) for one in finding.patches],
    )


def _patch(patch: Patch) -> PatchAnswer:
    return PatchAnswer.model_validate(patch.to_dict())
