"""Which of some descriptions a prompt is about, by the words that they share.

A stand-in for a model's own choice: a rare word counts more than one that most descriptions have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_ENDINGS = ("ings", "ing", "ers", "er", "ed", "es", "s", "e", "y")
_LEAST_STEM = 3
_COMMON_WORDS = """
a about after all also an and any are as at be been before but by can did do does doing done
for from get give go had has have he her here him his how i if in into is it its just let
like make me more my need no not now of on one only or our out over please she should so
some than that the their them then there these they this to too under up us use used using
want wants was we were what when where which while who why will with without would you your
somebody something someone trainmaster
"""
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True, slots=True)
class Matcher:
    """`words`: the stems of each description, by its name. `shared`: in how many each stands."""

    words: Mapping[str, frozenset[str]]
    shared: Mapping[str, int]

    @classmethod
    def of(cls, descriptions: Mapping[str, str]) -> Matcher:
        words = {name: stems(text) for name, text in descriptions.items()}
        return cls(words, Counter(stem for each in words.values() for stem in each))

    def ranked(self, prompt: str) -> list[tuple[float, str]]:
        """Every name with its score, the best first."""
        asked = stems(prompt)
        scored = [(self._score(asked & has), name) for name, has in self.words.items()]
        return sorted(scored, key=lambda one: (-one[0], one[1]))

    def _score(self, stems_found: frozenset[str]) -> float:
        return sum(math.log(1 + len(self.words) / self.shared[stem]) for stem in stems_found)


def stems(text: str) -> frozenset[str]:
    """The words of a text without endings, and without those that say nothing of a subject."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("_", " ").replace("fine-tun", "finetun"))
    return frozenset(_stem(word) for word in words if word not in _COMMON and len(word) > 1)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word[: -len(ending)]
    return word
