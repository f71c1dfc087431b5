"""Which signatures a line matches, with the last lines' answers kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainer_runtime.core.diagnosis.signatures.is_quoted import is_quoted
from trainer_runtime.core.diagnosis.signatures.log_blocks import ANSI, Line
from trainer_runtime.core.diagnosis.signatures.signature import Signature
from trainer_runtime.core.diagnosis.signatures.slots import Slots, slots_of
from trainer_runtime.core.diagnosis.traceback_text import last_traceback

KEPT_LINE_BYTES = 2_000
_MAX_CACHED_LINES = 100  # a failure's lines often repeat, over and over


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that a line matches; `near` is the part of the line that is shown."""

    signature: Signature
    slots: Slots
    near: bytes


class LineMatcher:
    """Matches lines against candidate signatures; remembers the last 100 different lines."""

    def __init__(self) -> None:
        self._by_line: dict[bytes, tuple[Match, ...]] = {}

    def matches(self, line: Line, candidates: Iterable[Signature]) -> tuple[Match, ...]:
        """The matches of a line; `candidates` follow from its shape."""
        matches = self._by_line.get(line.raw)
        if matches is None:
            if len(self._by_line) >= _MAX_CACHED_LINES:
                self._by_line.clear()
            matches = self._by_line[line.raw] = tuple(_matches(line, candidates))
        meant = (_as_meant(match, line) for match in matches)
        return tuple(match for match in meant if match is not None)


def _matches(line: Line, candidates: Iterable[Signature]) -> Iterator[Match]:
    text, message = line.text, line.message
    for signature in candidates:
        unless = signature.unless
        if unless and (re.search(unless, text) or re.search(unless, message)):
            continue
        match = _match(signature, message)
        # A rank or a level before the message may belong to the wording.
        if match is None and message != text:
            match = _match(signature, text)
        if match is not None:
            start, end = max(0, match.start() - 300), match.end() + 1_200
            near = match.string[start:end].encode()[:KEPT_LINE_BYTES]
            yield Match(signature, slots_of(match.groupdict()), near)


def _match(signature: Signature, text: str) -> re.Match[str] | None:
    match = re.search(signature.pattern, text)
    if match is None or is_quoted(text, match.start(), match.end(), signature.head):
        return None
    return match


def _as_meant(match: Match, line: Line) -> Match | None:
    """The match with the slots of what stands before the line, None where that isn't what the
    signature asks for."""
    signature = match.signature
    if not (signature.after or signature.phases or signature.not_phases):
        return match
    before = ANSI.sub(b"", line.context).decode("utf-8", errors="replace")
    if signature.after:
        after = re.search(signature.after, before)
        if after is None:
            return None
        match = replace(match, slots={**slots_of(after.groupdict()), **match.slots})
    traceback = last_traceback(before)
    phase = traceback.phase if traceback else None
    if signature.phases and phase not in signature.phases:
        return None
    return None if phase in signature.not_phases else match
