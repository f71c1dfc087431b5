"""Makes answers from findings."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainer_runtime.core.protocol.finding import LONGEST_EVIDENCE, MOST_EVIDENCE, Finding, Patch
from trainer_runtime.core.protocol.text import shown
from trainmaster.answers.diagnosis import FindingAnswer, PatchAnswer
from trainmaster.runs.diagnosis.finding_names import is_word, word

_LONGEST_TEXT = 1000
_MOST_SENTENCES = 12


def finding_answer(
    finding: Finding,
    *,
    attempt: int | None = None,
    over: bool = False,
    tried: Collection[str] = (),
) -> FindingAnswer:
    """The answer of a finding, which may come from a journal, with sanitised text.

    Patches that were `tried` (ids) come last.

    Raises:
        ValueError: a name is not one of the catalogues'.
    """
    return FindingAnswer(
        id=word(finding.id),
        code=word(finding.code),
        severity=finding.severity,
        confidence=min(1.0, max(0.0, finding.confidence)),
        step=finding.step,
        attempt=attempt,
        over=over or None,
        evidence=_lines(finding.evidence, MOST_EVIDENCE, LONGEST_EVIDENCE),
        explanation=_text(finding.explanation, _LONGEST_TEXT),
        advice=_lines(finding.advice, _MOST_SENTENCES, _LONGEST_TEXT),
        led_to=[code for code in finding.led_to[:_MOST_SENTENCES] if is_word(code)],
        patches=sorted(
            (_patch(patch, tried) for patch in finding.patches), key=lambda patch: bool(patch.tried)
        ),
    )


def _patch(patch: Patch, tried: Collection[str]) -> PatchAnswer:
    text = {"id": word(patch.id), "why": _text(patch.why, _LONGEST_TEXT)}
    return PatchAnswer.model_validate(
        {**patch.to_dict(), **text, "tried": patch.id in tried or None}
    )


def _lines(texts: Sequence[str], most: int, longest: int) -> list[str]:
    return [_text(text, longest) for text in texts[:most]]


def _text(text: str, longest: int) -> str:
    return shown(text.encode(errors="replace"))[:longest]
