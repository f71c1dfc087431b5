"""Masks secrets in stored text: each byte of a value becomes `*`, so that offsets stay the same.

Stateless over the bytes: a copier of a stream may be killed and continue from the length of its
copy with different chunks, and the masked bytes are the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

_SHORTEST_LINE = 12
SHORTEST_VALUE = 4  # characters; a shorter one stands by chance in every log
# Values may overlap each other without end, as `----` does in a ruler of dashes. After this
# many overlapping ones the search starts again, which bounds the time and the bytes held back.
_MOST_OVERLAPS = 16


class Mask:
    """Replaces every occurrence of any of `values` by as many `*`.

    A value is known as UTF-8, as it stands inside a JSON string, quoted for a URL, and with the
    line ends of a terminal. Values of fewer than 4 characters are left as they are.
    """

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values if len(value) >= SHORTEST_VALUE for form in _forms(value)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        # Of those that begin at the same place the longest wins: alternatives are tried in order.
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)) or b"(?!)")
        self._longest = max(map(len, self._forms), default=0)
        self._first_bytes = {form[0] for form in self._forms}

    @property
    def reach_bytes(self) -> int:
        """How many bytes before a place decide, at most, whether it is a part of a value."""
        return max(0, self._longest - 1)

    def apply(self, data: bytes, *, final: bool) -> bytes:
        """The bytes masked; without `final` without those at the end that more data may change.

        The caller passes the bytes that were not returned again, with the data that follows. Takes
        linear time.
        """
        begun = [] if final else list(self._begun(data))
        masked: bytearray | None = None
        position = 0
        while True:
            begins = next((start for start in begun if start >= position), len(data))
            match = self._pattern.search(data, position)
            if match is None or begins <= match.start():
                return bytes(data if masked is None else masked)[:begins]
            end = self._end(data, match, begun)
            if end is None:
                return bytes(data if masked is None else masked)[: match.start()]
            masked = bytearray(data) if masked is None else masked
            masked[match.start() : end] = b"*" * (end - match.start())
            position = end

    def text(self, text: str) -> str:
        """A whole text, masked."""
        return self.apply(text.encode(errors="replace"), final=True).decode(errors="replace")

    def _begun(self, data: bytes) -> Iterator[int]:
        """Where from on the rest of the data is the beginning of a value, and not all of it."""
        for start in range(max(0, len(data) - self.reach_bytes), len(data)):
            if data[start] not in self._first_bytes:
                continue
            rest = data[start:]
            if any(len(form) > len(rest) and form.startswith(rest) for form in self._forms):
                yield start

    def _end(self, data: bytes, match: re.Match[bytes], begun: list[int]) -> int | None:
        """Where a value ends with those that overlap it; None where more data may decide that."""
        position, end = match.start() + 1, match.end()
        for _ in range(_MOST_OVERLAPS):
            begins = next((start for start in begun if start >= position), len(data))
            further = self._pattern.search(data, position, end + self._longest)
            start = end if further is None else further.start()
            if begins < end and begins <= start:
                return None
            if further is None or start >= end:
                return end
            position, end = start + 1, max(end, further.end())
        return end


def _forms(value: str) -> Iterator[bytes]:
    yield value.encode(errors="surrogateescape")
    text = value.encode(errors="replace").decode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    yield json.dumps(text)[1:-1].encode()
    yield quote(text, safe="").encode()
    yield quote(text).encode()
    yield quote_plus(text).encode()
    yield text.replace("\n", "\r\n").encode()
    yield repr(text)[1:-1].encode()  # as in a traceback, or a printed environment
    yield text.replace("'", "'\\''").encode()  # as shells quote it
    for line in text.splitlines():  # of a key, say, that is printed line by line
        if len(line) >= _SHORTEST_LINE:
            yield line.encode()
