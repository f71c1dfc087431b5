"""Makes answers from findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trainer_runtime.core.protocol.finding import LONGEST_EVIDENCE, MOST_EVIDENCE
from trainer_runtime.core.protocol.text import shown
from trainmaster.words.answers.diagnosis import FindingAnswer, PatchAnswer

_LONGEST_TEXT = 1000
_MOST_SENTENCES = 12


def finding_answer(
    finding: Mapping[str, Any],
    *,
    attempt: int | None = None,
    over: bool = False,
    tried: Collection[str] = (),
) -> FindingAnswer:
    """The answer of a finding from `Finding.to_dict()` or a journal, with sanitised text.

    Patches that were `tried` (ids) come last.

    Raises:
        ValueError: it does not describe a finding.
    """
    return FindingAnswer(
        id=_word(finding["id"]),
        code=_word(finding["code"]),
        severity=finding["severity"],
        confidence=float(finding.get("confidence", 1.0)),
        step=finding.get("step"),
        attempt=attempt,
        over=over or None,
        evidence=_lines(finding.get("evidence"), MOST_EVIDENCE, LONGEST_EVIDENCE),
        explanation=_text(finding.get("explanation", ""), _LONGEST_TEXT),
        advice=_lines(finding.get("advice"), _MOST_SENTENCES, _LONGEST_TEXT),
        led_to=_lines(finding.get("led_to"), _MOST_SENTENCES, 64),
        patches=sorted(
            (_patch(patch, tried) for patch in finding.get("patches") or ()),
            key=lambda patch: bool(patch.tried),
        ),
    )


def _patch(patch: Mapping[str, Any], tried: Collection[str]) -> PatchAnswer:
    text = {"id": _word(patch["id"]), "why": _text(patch.get("why", ""), _LONGEST_TEXT)}
    return PatchAnswer.model_validate({**patch, **text, "tried": patch["id"] in tried or None})


def _word(value: Any) -> str:
    text = str(value)
    if not (text.isascii() and text.replace("_", "").isalnum() and len(text) <= 64):
        raise ValueError(f"{text[:80]!r} is not a name of the catalogues")
    return text


def _lines(values: Any, most: int, longest: int) -> list[str]:
    return [_text(value, longest) for value in list(values or ())[:most]]


def _text(value: Any, longest: int) -> str:
    return shown(str(value).encode(errors="replace"))[:longest]
