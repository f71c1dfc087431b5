"""The signatures of the kinds in kinds/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainer_runtime.core.diagnosis.kinds import KINDS, Kind, Wording
from trainer_runtime.core.diagnosis.signatures.keywords import keywords_of
from trainer_runtime.core.diagnosis.signatures.signature import Head, Signature


def of_kinds(kinds: Iterable[Kind] = KINDS) -> Iterator[Signature]:
    """One for each wording, named `code/number`."""
    for kind in kinds:
        for number, wording in enumerate(kind.wordings, 1):
            yield _signature(kind, wording, number)


def _signature(kind: Kind, wording: Wording, number: int) -> Signature:
    return Signature(
        name=f"{kind.code}/{number}",
        code=kind.code,
        keywords=keywords_of(wording.when),
        pattern=wording.when,
        severity=kind.severity,
        confidence=wording.confidence or kind.confidence,
        head=Head.RAISED,
        unless=wording.unless,
        retryable=kind.retryable,
        after=wording.after,
        phases=wording.phases,
        not_phases=wording.not_phases,
    )
