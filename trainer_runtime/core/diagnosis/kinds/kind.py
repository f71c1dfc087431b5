"""A kind of failure as one row: when it is meant, what it is, what helps."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.finding import Severity


@dataclass(frozen=True, slots=True)
class Wording:
    """A text that reports a failure.

    `when`: a regular expression of a line without its prefixes; every alternative has a whole word
    (`\\b` beside what may be longer). `unless` rejects the line, `after` has to occur in the 8 KiB
    before it; named groups of `when` and `after` are slots (signatures/slots.py). `phases` and
    `not_phases`: what the traceback that ends with the line says that the program was doing.
    `example` is a text of our own that has it, `source` the program that prints it.
    """

    when: str
    example: str
    source: str
    unless: str | None = None
    after: str | None = None
    phases: tuple[Phase, ...] = ()
    not_phases: tuple[Phase, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure. `says` is its cause, `advice` what a person can do, the likeliest first.

    `instead_of`: codes of kinds that the same texts name too, less exactly. `ends`: it ends a
    process, and what other processes report afterwards follows from it; else it is itself what
    others lead to. `follows`: codes of kinds that lead to it. `retryable`: programs catch it and
    continue.
    """

    code: str
    says: str
    advice: tuple[str, ...]
    wordings: tuple[Wording, ...]
    confidence: float = 0.9
    severity: Severity = "critical"
    instead_of: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    ends: bool = True
    retryable: bool = False
