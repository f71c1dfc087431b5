"""A failure's signature, and its occurrence in a log."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.finding import Severity, Slot

SETTLES_AFTER = 5
_STEP = re.compile(
    rb"(?i)(?:\b(?:global_step|step|iter(?:ation)?)\b[\"']?\s*[:=#]?\s*|\bs:)(\d{1,12})\b(?!\.\d)"
)


class Strength(IntEnum):
    """How much an occurrence alone says about the cause."""

    GUESSED = 1  # a signal or a number without any text
    HINTED = 2  # a text that other causes produce as well
    STATED = 3  # the text names the cause


class Head(str, Enum):
    """What may precede the text on its line (see is_quoted.py)."""

    PREFIX = "prefix"  # time, level, rank, logger, the exception's name, a short phrase with colon
    WORDS = "words"  # anything but code, quoted data or somebody's question
    RAISED = "raised"  # as `WORDS`; and whatever an exception's own message says before
    FIELDS = "fields"  # other fields of a line of metrics


@dataclass(frozen=True, slots=True)
class Signature:
    """One wording of one failure; a code has several.

    `keywords` find candidates cheaply: `memory+out+cuda|outofmemoryerror` requires all words of one
    group, as lower-case letters (see shapes.py). `shape` must also match the line's shape, where
    keywords alone would select too many lines. `pattern` decides on the line itself; its named
    groups are slots, by the names that slots.py checks. `unless` rejects the line again.
    `retryable`: programs catch this failure and continue. `cumulative`: one occurrence means
    little; they are counted over the whole log and judged at its end. `after`, `phases` and
    `not_phases` are as in kinds/kind.py. After `settles_after` lines
    of progress it is over: after a fatal failure the process prints none, but of several processes
    others may print a few. Expressions are texts: `re` compiles, and keeps, those of candidates;
    compiling all of them took every supervisor a tenth of a second.
    """

    name: str
    code: str
    keywords: str
    pattern: str
    severity: Severity = "critical"
    confidence: float = 0.95
    strength: Strength = Strength.STATED
    head: Head = Head.PREFIX
    shape: str | None = None
    unless: str | None = None
    retryable: bool = False
    cumulative: bool = False
    settles_after: int = SETTLES_AFTER
    after: str | None = None
    phases: tuple[Phase, ...] = ()
    not_phases: tuple[Phase, ...] = ()


@dataclass(slots=True)
class Occurrence:
    """Where a signature matched first, and what followed.

    `offset` is the byte of the log where the line begins, None outside the log. `progress_since`
    counts lines of progress since the last match (for a cumulative signature only those with a
    loss). `retried`: a line right after it reported a retry. `context` is the log up to the line.
    """

    signature: Signature
    offset: int | None
    line: bytes
    slots: dict[str, Slot] = field(default_factory=dict)
    context: bytes = b""
    count: int = 1
    progress_since: int = 0
    retried: bool = False
    ranks: set[int] = field(default_factory=set)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`."""
        return {
            "offset": self.offset,
            "line": base64.b64encode(self.line).decode(),
            "slots": self.slots,
            "context": base64.b64encode(self.context).decode(),
            "count": self.count,
            "progress_since": self.progress_since,
            "retried": self.retried,
            "ranks": sorted(self.ranks),
        }

    @classmethod
    def from_dict(cls, signature: Signature, memory: Mapping[str, Any]) -> Occurrence:
        return cls(
            signature,
            memory["offset"],
            base64.b64decode(memory["line"]),
            dict(memory["slots"]),
            base64.b64decode(memory["context"]),
            memory["count"],
            memory["progress_since"],
            memory["retried"],
            set(memory["ranks"]),
        )

    @property
    def code(self) -> str:
        return self.signature.code

    @property
    def step(self) -> int | None:
        """The last step printed before the line, or on it."""
        last = None
        for match in _STEP.finditer(self.context):
            last = match
        return int(last[1]) if last else None

    @property
    def settled(self) -> bool:
        """Whether enough progress followed."""
        return self.progress_since >= (1 if self.retried else self.signature.settles_after)

    def resume(self) -> None:
        """A new process continues: its progress counts at once."""
        least = self.signature.settles_after - SETTLES_AFTER
        self.progress_since = max(self.progress_since, least)


def log_order(offset: int | None) -> tuple[bool, int]:
    """Sorts by byte of the log; what is known from elsewhere comes after the whole log."""
    return offset is None, offset or 0


def signature(
    name: str,
    keywords: str,
    pattern: str,
    *,
    severity: Severity = "critical",
    confidence: float = 0.95,
    strength: Strength = Strength.STATED,
    head: Head = Head.PREFIX,
    shape: str | None = None,
    unless: str | None = None,
    retryable: bool = False,
    cumulative: bool = False,
    settles_after: int = SETTLES_AFTER,
) -> Signature:
    """A signature named `code/wording`."""
    return Signature(
        name=name,
        code=name.partition("/")[0],
        keywords=keywords,
        pattern=pattern,
        severity=severity,
        confidence=confidence,
        strength=strength,
        head=head,
        shape=shape,
        unless=unless,
        retryable=retryable,
        cumulative=cumulative,
        settles_after=settles_after,
    )
