"""Objects that a program prints over several lines, as lines of their own.

As `pprint` and `json.dump` with an indent write them. The line ends within become spaces, so that
every byte keeps its place.
"""

from __future__ import annotations

import re

_MOST_LINES, LONGEST = 64, 1 << 13
# The innermost braces, whose first line ends with a brace or a pair.
_OBJECT = re.compile(rb"\{[^{}\n]*\n[^{}]*\},?")
_SPACES = re.compile(rb"\s*\n\s*")
_PAIR = re.compile(rb"\s*['\"]\w[^'\"\n]{0,80}['\"]: ?[^\n]*,?\s*$")
_STARTS = (b"{\n", b",\n")


def joined(data: bytes) -> bytes:
    """The same lines, with each such object on one, indented as before and padded behind."""
    if b"{" not in data or not any(map(data.__contains__, _STARTS)):  # a byte is found sooner
        return data
    return _OBJECT.sub(_join, data)


def begun(data: bytes) -> int | None:
    """Where the line begins with an object that has no end yet; None where there is none."""
    at = data.rfind(b"{", max(0, len(data) - LONGEST))
    if at < 0 or b"}" in data[at:]:
        return None
    first, *rest = data[at + 1 :].split(b"\n")
    is_first = not first.strip() or _is_pair(first)
    if len(rest) > _MOST_LINES or not is_first or not all(map(_is_pair, rest[:-1])):
        return None
    return data.rfind(b"\n", 0, at) + 1


def _is_pair(line: bytes) -> bool:
    return _PAIR.match(line) is not None


def _join(match: re.Match[bytes]) -> bytes:
    text = match[0]
    inner = text.rstrip(b",")[1:-1]
    lines = inner.strip().split(b"\n")
    if len(text) > LONGEST or len(lines) > _MOST_LINES or not all(map(_is_pair, lines)):
        return text
    pairs = _SPACES.sub(b" ", inner.strip())
    spaces = b" " * (len(text) - 2 - len(pairs))
    first, comma, others = pairs.partition(b", ")
    return b"{" + first + comma + spaces + others + b"}"
