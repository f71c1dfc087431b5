"""The number tokens of a line: their positions, and the line with other numbers in their place."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

ZEROS = bytes.maketrans(b"123456789", b"000000000")
_EXPONENT = re.compile(rb"\d[eE][-+]?\d")
_THOUSANDS = re.compile(rb"\d,\d")
_FILL = re.compile(rb"\|(?:\xe2[\x94-\x96][\x80-\xbf]|[ #])*\|")  # a progress bar's


@dataclass(frozen=True, slots=True)
class NumberTokens:
    """A line's numbers in order.

    `texts` are the tokens, without commas between thousands; `spans` their (start, end) in the
    line. For any line of the same shape `translate(table, delete).split()` gives its tokens.
    """

    line: bytes
    texts: tuple[bytes, ...]
    spans: tuple[tuple[int, int], ...]
    table: bytes
    delete: bytes
    has_exponents: bool

    @classmethod
    def of(cls, line: bytes) -> NumberTokens | None:
        """The tokens of a line; None if it has none or they are ambiguous."""
        has_exponents = _EXPONENT.search(line) is not None
        delete = b"," if _THOUSANDS.search(line) else b""
        kept = b"0123456789.+-" + (b"eE" if has_exponents else b"")
        table = bytes(c if c in kept or c == 10 else 32 for c in range(256))
        run = re.compile(b"[" + re.escape(kept + delete) + b"]+")
        spans = tuple(
            _without_commas(match) for match in run.finditer(line) if match[0].strip(b",")
        )
        texts = tuple(line.translate(table, delete).split())
        if not texts or len(texts) != len(spans):
            return None
        return cls(line, texts, spans, table, delete, has_exponents)

    def original(self, index: int) -> bytes:
        """A token as the line has it."""
        start, stop = self.spans[index]
        return self.line[start:stop]

    def replaced(self, texts: Mapping[int, bytes]) -> bytes:
        """The line with other texts for some tokens, given in ascending order."""
        parts, end = [], 0
        for index, text in texts.items():
            start, stop = self.spans[index]
            parts += [self.line[end:start], text]
            end = stop
        return b"".join([*parts, self.line[end:]])

    def indented(self) -> dict[int, bytes]:
        """The tokens that follow a space, with more spaces before them."""
        return {
            index: b"   " + self.line[start:stop]
            for index, (start, stop) in enumerate(self.spans)
            if self.line[:start].endswith(b" ")
        }

    def pattern(self, forms: Mapping[int, bytes], padded: Collection[int], digit: bytes) -> bytes:
        """An expression for lines of the same shape whose digits match `digit`.

        `forms` are the expressions of tokens that vary, in zeros; the others keep their length.
        `padded` are the tokens before which the number of spaces varies.
        """
        parts, end = [], 0
        for index, (start, stop) in enumerate(self.spans):
            parts.append(_literal(self.line[end:start], index in padded))
            exact = re.escape(self.line[start:stop].translate(ZEROS))
            parts.append(forms.get(index, exact).replace(b"0", digit))
            end = stop
        return b"".join([*parts, _literal(self.line[end:], False)])


def _without_commas(match: re.Match[bytes]) -> tuple[int, int]:
    """The span of a run of number characters without the commas around it."""
    run = match[0]
    leading = len(run) - len(run.lstrip(b","))
    trailing = len(run) - len(run.rstrip(b","))
    return match.start() + leading, match.end() - trailing


def _literal(text: bytes, spaces_vary: bool) -> bytes:
    parts, end = [], 0
    for fill in _FILL.finditer(text):
        parts += [re.escape(text[end : fill.start()]), _FILL.pattern]
        end = fill.end()
    rest = text[end:]
    bare = rest.rstrip(b" ")
    if spaces_vary and len(bare) < len(rest):
        return b"".join([*parts, re.escape(bare), b" +"])
    return b"".join([*parts, re.escape(rest)])
