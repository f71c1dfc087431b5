"""What a signature of a failure is, and what is seen of one in a log."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from trainer_runtime.core.protocol.finding import Severity

SETTLES_AFTER = 5
_STEP = re.compile(
    rb"(?i)(?:\b(?:global_step|step|iter(?:ation)?)\b[\"']?\s*[:=#]?\s*|\bs:)(\d{1,12})\b(?!\.\d)"
)


class Strength(IntEnum):
    """How much a sighting says by itself about the cause."""

    GUESSED = 1  # a signal or a number, with nothing said
    HINTED = 2  # said, but other causes end the same way
    STATED = 3  # the text names the cause


class Head(str, Enum):
    """What may stand on the line before the text (see credible.py)."""

    PREFIX = "prefix"  # time, level, rank, logger, the exception's name, a short phrase with colon
    WORDS = "words"  # anything but code, quoted data or somebody's question
    FIELDS = "fields"  # other fields of a line of metrics


@dataclass(frozen=True, slots=True)
class Signature:
    """One wording of one failure; a code has several.

    `gate` finds candidates cheaply: `memory+out+cuda|outofmemoryerror` wants all words of one
    group, as letters only, in small letters (see shapes.py). `shape` must also match the line's
    letters, where words alone would stop at too many lines. `pattern` decides on the line itself;
    its named groups are slots, by the names that slots.py checks. `unless` clears the line again.
    `retryable`: programs catch this one and go on. `gathered`: single sightings say little; they
    are counted over the whole log and judged at its end. `settles_after` lines of progress it is
    over: one that kills says no more, of several processes some may, for a moment.
    """

    name: str
    code: str
    gate: str
    pattern: re.Pattern[str]
    severity: Severity = "critical"
    confidence: float = 0.95
    strength: Strength = Strength.STATED
    head: Head = Head.PREFIX
    shape: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    retryable: bool = False
    gathered: bool = False
    settles_after: int = SETTLES_AFTER


@dataclass(slots=True)
class Sighting:
    """Where a signature was seen first, and what came after.

    `offset` is the byte of the log where the line begins, `quiet` the number of lines of progress
    since it was last seen (with a loss on them where the signature is gathered), `retried` says
    that a line right after it told of another try. `context` is what the log said until then.
    """

    signature: Signature
    offset: int
    line: bytes
    slots: dict[str, float | int] = field(default_factory=dict)
    context: bytes = b""
    count: int = 1
    quiet: int = 0
    retried: bool = False
    ranks: set[int] = field(default_factory=set)

    @property
    def code(self) -> str:
        return self.signature.code

    @property
    def step(self) -> int | None:
        """The step that was told last before the line, or on it."""
        last = None
        for match in _STEP.finditer(self.context):
            last = match
        return int(last[1]) if last else None

    @property
    def settled(self) -> bool:
        """Whether enough of progress came after it."""
        return self.quiet >= (1 if self.retried else self.signature.settles_after)


def signature(
    name: str,
    gate: str,
    pattern: str,
    *,
    severity: Severity = "critical",
    confidence: float = 0.95,
    strength: Strength = Strength.STATED,
    head: Head = Head.PREFIX,
    shape: str | None = None,
    unless: str | None = None,
    retryable: bool = False,
    gathered: bool = False,
    settles_after: int = SETTLES_AFTER,
) -> Signature:
    """A signature by its name `code/wording`."""
    return Signature(
        name=name,
        code=name.partition("/")[0],
        gate=gate,
        pattern=re.compile(pattern),
        severity=severity,
        confidence=confidence,
        strength=strength,
        head=head,
        shape=re.compile(shape) if shape else None,
        unless=re.compile(unless) if unless else None,
        retryable=retryable,
        gathered=gathered,
        settles_after=settles_after,
    )
