"""What a diagnosis says: one shape for signatures of failures and for detectors of series.

Log text is an attacker's text. It stands in `evidence` alone, made harmless and capped; what a
finding explains and proposes comes from closed catalogues, with slots that hold checked numbers
and names of closed lists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer_runtime.core.decoding import Fields, JsonRecord, number
from trainer_runtime.core.protocol.text import shown

Severity = Literal["info", "warning", "critical"]
Slot = float | int | str
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")

MOST_EVIDENCE = 6
LONGEST_EVIDENCE = 400


def _resume_from(fields: Fields) -> str | int:
    value = fields.values.get("from")
    return value if isinstance(value, (int, str)) else "latest"


@dataclass(frozen=True, slots=True)
class Patch(JsonRecord):
    """One change of the resolved config that a resume can apply.

    `set` gives the new values by dotted name and `expected` those that they replace: a config that
    has others by now refuses the patch. `resume_from` is `latest`, `best`, `scratch` or a step;
    `skip` says which data to leave out (as `Decision.skip` in core/policy/recovery.py).
    `keeps_batch`: an optimizer step sees as many tokens as before. `why` comes from the catalogue.
    """

    id: str
    set: Mapping[str, object]
    expected: Mapping[str, object]
    why: str = ""
    resume_from: str | int = field(default="latest", metadata={"key": "from", "read": _resume_from})
    skip: Mapping[str, int] | None = None
    keeps_batch: bool = True


def _confidence(fields: Fields) -> float:
    confidence = number(fields.values.get("confidence"))
    return 1.0 if confidence is None else confidence


def _explanation(fields: Fields) -> str:
    return fields.text("explanation", "")


def _no_slots(fields: Fields) -> Mapping[str, Slot]:
    """A finding that was read has none: its explanation is filled already."""
    return {}


@dataclass(frozen=True, slots=True)
class Finding(JsonRecord):
    """One diagnosis.

    `confidence` is 0 to 1: how sure the code is, given the evidence. `step` is None where it is
    unknown. `led_to` lists the codes of the symptoms that this cause explains; they are not
    findings. `advice` is the catalogue's instruction where no patch applies.
    """

    id: str
    code: str
    severity: Severity
    confidence: float = field(metadata={"read": _confidence})
    step: int | None
    evidence: tuple[str, ...]
    explanation: str = field(metadata={"read": _explanation})
    patches: tuple[Patch, ...] = ()
    advice: tuple[str, ...] = ()
    led_to: tuple[str, ...] = ()
    slots: Mapping[str, Slot] = field(default_factory=dict, metadata={"read": _no_slots})

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the answer of `diagnose`; only the slots are left out."""
        body = super(Finding, self).to_dict()
        del body["slots"]
        return body


def finding_id(placement: int, attempt: int, code: str, onset: int | str | None) -> str:
    """Eight hexadecimal digits, alike on both sides.

    `onset` is the step where one is known, else `@` and the byte of the attempt's log.
    """
    named = f"{placement}:{attempt}:{code}:{onset}"
    return hashlib.sha256(named.encode(errors="backslashreplace")).hexdigest()[:8]


def as_evidence(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Lines of a log as they may be shown: harmless, at most 400 characters, six of them."""
    evidence: list[str] = []
    for line in lines:
        text = shown(line).strip()
        if len(text) > LONGEST_EVIDENCE:
            text = f"{text[: LONGEST_EVIDENCE - 2]} …"
        if text and text not in evidence:
            evidence.append(text)
        if len(evidence) == MOST_EVIDENCE:
            break
    return tuple(evidence)
