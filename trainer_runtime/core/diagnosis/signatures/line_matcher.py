"""Which signatures a line matches, with the last lines' answers kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainer_runtime.core.diagnosis.signatures.is_quoted import is_quoted
from trainer_runtime.core.diagnosis.signatures.signature import Signature
from trainer_runtime.core.diagnosis.signatures.slots import Slots, slots_of
from trainer_runtime.core.records import dataclass

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

    def matches(self, raw: bytes, text: str, candidates: Iterable[Signature]) -> tuple[Match, ...]:
        """The matches of a line; `text` is `raw` decoded, `candidates` follow from its shape."""
        found = self._by_line.get(raw)
        if found is None:
            if len(self._by_line) >= _MAX_CACHED_LINES:
                self._by_line.clear()
            found = self._by_line[raw] = tuple(_matches(text, candidates))
        return found


def _matches(text: str, candidates: Iterable[Signature]) -> Iterator[Match]:
    for signature in candidates:
        match = signature.pattern.search(text)
        if match is None or (signature.unless and signature.unless.search(text)):
            continue
        if not is_quoted(text, match.start(), match.end(), signature.head):
            near = text[max(0, match.start() - 300) : match.end() + 1_200].encode()
            yield Match(signature, slots_of(match.groupdict()), near[:KEPT_LINE_BYTES])
