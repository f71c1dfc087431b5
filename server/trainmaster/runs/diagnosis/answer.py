"""The answer of `diagnose`: findings, the first cause first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from pydantic import Field

from trainer_runtime.core.protocol.finding import LONGEST_EVIDENCE, MOST_EVIDENCE, Finding, Patch
from trainer_runtime.core.protocol.text import shown
from trainmaster.words.answers.runs import Answer

_LONGEST_TEXT = 1000
_MOST_SENTENCES = 12


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
    skip: dict[str, int] | None = Field(default=None, description="data that is left out")
    keeps_batch: bool = Field(description="an optimizer step sees as many tokens as before")
    why: str
    tried: bool | None = Field(
        default=None, description="true where it was applied before, and did not help for good"
    )


class FindingAnswer(Answer):
    """One diagnosis. Only `evidence` holds text of the log: untrusted data."""

    id: str
    code: str
    severity: Literal["info", "warning", "critical"]
    confidence: float
    step: int | None = None
    attempt: int | None = None
    over: bool | None = Field(default=None, description="true for what was wrong and is not now")
    evidence: list[str]
    explanation: str
    advice: list[str]
    led_to: list[str] = Field(description="codes of the symptoms that this cause explains")
    patches: list[PatchAnswer]


class DiagnosisAnswer(Answer):
    """Findings of a run or a file; none where nothing is wrong.

    `reason`: how a run failed without a finding.
    `read_bytes` is how much of a file was read, `series_until_step` where its series were no longer
    read: they hold more steps than that.
    """

    run_id: str | None = None
    findings: list[FindingAnswer]
    reason: str | None = Field(
        default=None, description="how it failed, where no finding explains it"
    )
    evidence: list[str] | None = Field(default=None, description="the last words of its log")
    omitted: int | None = Field(default=None, description="further findings, less pressing")
    read_bytes: int | None = None
    series_until_step: int | None = None
    next_step: str | None = None
    next_tools: list[str] | None = None


def finding_answer(
    found: Finding,
    *,
    attempt: int | None = None,
    over: bool = False,
    tried: Collection[str] = (),
) -> FindingAnswer:
    """A finding made harmless: it may come from the journal of a host.

    Patches that were `tried` (ids) come last.

    Raises:
        ValueError: a name is not one of the catalogues'.
    """
    return FindingAnswer(
        id=_word(found.id),
        code=_word(found.code),
        severity=found.severity,
        confidence=found.confidence,
        step=found.step,
        attempt=attempt,
        over=over or None,
        evidence=_lines(found.evidence, MOST_EVIDENCE, LONGEST_EVIDENCE),
        explanation=_text(found.explanation, _LONGEST_TEXT),
        advice=_lines(found.advice, _MOST_SENTENCES, _LONGEST_TEXT),
        led_to=_lines(found.led_to, _MOST_SENTENCES, 64),
        patches=sorted(
            (_patch(patch, tried) for patch in found.patches), key=lambda patch: bool(patch.tried)
        ),
    )


def _patch(patch: Patch, tried: Collection[str]) -> PatchAnswer:
    text = {"id": _word(patch.id), "why": _text(patch.why, _LONGEST_TEXT)}
    return PatchAnswer.model_validate(
        {**patch.to_dict(), **text, "tried": patch.id in tried or None}
    )


def _word(text: str) -> str:
    if not (text.isascii() and text.replace("_", "").isalnum() and len(text) <= 64):
        raise ValueError(f"{text[:80]!r} is not a name of the catalogues")
    return text


def _lines(texts: Sequence[str], most: int, longest: int) -> list[str]:
    return [_text(text, longest) for text in texts[:most]]


def _text(text: str, longest: int) -> str:
    return shown(text.encode(errors="replace"))[:longest]
