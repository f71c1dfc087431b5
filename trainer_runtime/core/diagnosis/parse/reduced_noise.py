"""Knows lines of noise by what is left of them without hexadecimal digits.

Those digits make each line of noise different. Removing them from a line and from a needle keeps
the needle in the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_HEX = b"0123456789abcdef"
_MOST_TEXTS = 20_000
_LONGEST_TEXT = 400


class ReducedNoise:
    """What is left of lines: noise, or lines with one of the `needles`, which may be others."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        reduced = {needle.translate(None, _HEX) for needle in needles}
        self._has_needle = re.compile(b"|".join(map(re.escape, sorted(reduced)))).search
        self._noise: set[bytes] = set()
        self._with_needle: set[bytes] = set()

    @staticmethod
    def reduced(data: bytes) -> list[bytes]:
        """What is left of each line."""
        texts = data.translate(None, _HEX).split(b"\n")
        texts.pop()
        return texts

    def others(self, texts: Sequence[bytes]) -> list[int]:
        """The lines of which something is left that is not known as noise."""
        noise = self._noise
        if noise.issuperset(texts):
            return []
        return [i for i, text in enumerate(texts) if text not in noise]

    def is_noise(self, text: bytes) -> bool:
        """Whether a line, of which this is left, is noise; remember it."""
        if text in self._noise:
            return True
        has_needle = self._has_needle(text) or text.startswith(b'{"')
        known = self._with_needle if has_needle else self._noise
        if len(known) >= _MOST_TEXTS:
            known.clear()
        if len(text) <= _LONGEST_TEXT:
            known.add(text)
        return not has_needle

    def remember(self, texts: Iterable[bytes]) -> None:
        """Know those of the texts as noise that have no needle."""
        for text in set(texts) - self._with_needle:
            if len(text) <= _LONGEST_TEXT:
                self.is_noise(text)
