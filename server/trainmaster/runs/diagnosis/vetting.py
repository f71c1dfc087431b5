"""A host's finding in the words of our own catalogues.

A journal is a file of the host: its explanation, advice and patches could be anybody's. A sentence
stays where a catalogue has it, with numbers in its slots; others are replaced by those of the code.
A patch stays where our own rule gives the same changes for the values that it expects.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.diagnosis.remedies import REMEDIES, RUNGS, Rung
from trainer_runtime.core.diagnosis.remedies.advice import advice
from trainer_runtime.core.diagnosis.remedies.advice import sentences as of_advice
from trainer_runtime.core.protocol.finding import Finding, Patch

UNEXPLAINED = "The host reported it. This version of Trainmaster has no explanation of the code."
_LONGEST_TEXT = 2000
_MOST_SENTENCES = 12
_MOST_IN_EXPLANATION = 10
_LARGEST_STEP = 2**53
_STARTS = ("latest", "best", "scratch")
_SLOT = re.compile(r"\{[^{}]+\}")  # `tracking={}` has none
_NUMBER = r"[-+]?[0-9][0-9.,eE+-]{0,24}(?: [KMG]iB)?"
_CODES_SLOT = "{codes}"
_CODES = r"(\w+(?:, \w+){0,20})"


def vetted_text(finding: Finding) -> tuple[str, tuple[str, ...]]:
    """The explanation and the advice of a host's finding, from the catalogues."""
    known_texts = _known(finding.code)
    explained = known_texts.has_sentences(finding.explanation[:_LONGEST_TEXT])
    advice = tuple(
        sentence
        for sentence in finding.advice[:_MOST_SENTENCES]
        if known_texts.has_sentence(sentence[:_LONGEST_TEXT])
    )
    if finding.advice and not advice:
        advice = known_texts.advice
    return finding.explanation if explained else known_texts.explanation, advice


def vetted_patches(finding: Finding, config: ConfigDocument) -> tuple[Patch, ...]:
    """The patches that our own catalogue gives for the values that the host's patches expect."""
    return tuple(_vetted(finding.patches, config))


def _vetted(patches: Sequence[Patch], config: ConfigDocument) -> Iterator[Patch]:
    for patch in patches:
        remedy = REMEDIES.get(patch.id)
        rung = RUNGS.get(patch.id) if remedy is None else RUNGS.get(remedy.rung or "")
        if remedy is None and rung is None:
            continue
        if not _is_start(patch.resume_from) or _changes(rung, patch, config) != dict(patch.set):
            continue
        rewinds = remedy is not None and patch.resume_from != "latest"
        why = " ".join(
            filter(None, (remedy.why if remedy and rewinds else "", rung.why if rung else ""))
        )
        expected = {path: patch.expected[path] for path in patch.set}
        yield Patch(patch.id, patch.set, expected, why, patch.resume_from, _skip(patch.skip))


def _is_start(resume_from: object) -> bool:
    if isinstance(resume_from, str):
        return resume_from in _STARTS
    return type(resume_from) is int and 0 <= resume_from < _LARGEST_STEP


def _changes(
    rung: Rung | None, patch: Patch, config: ConfigDocument
) -> Mapping[str, object] | None:
    """What our rule changes where the fields hold what the patch expects; None for other fields."""
    if rung is None:
        return {}
    try:
        return rung.changes(_with(config, {path: patch.expected[path] for path in patch.set}))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _with(config: ConfigDocument, values: Mapping[str, object]) -> dict[str, Any]:
    """The configuration with these values at dotted names, whether it has them or not."""
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for dotted, value in values.items():
        *parents, last = dotted.split(".")
        node = changed
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    return changed


def _skip(skip: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if skip is None:
        return None
    return {name: count for name, count in skip.items() if name in ("at_step", "sequences")}


class _Known:
    """The catalogues' text for one code."""

    def __init__(self, code: str) -> None:
        # With them comes every signature.
        from trainer_runtime.core.diagnosis.detectors import messages as series
        from trainer_runtime.core.diagnosis.signatures import explain as log
        from trainer_runtime.core.diagnosis.stacks import messages as stacks

        of_log, of_series = log.sentences(code), series.sentences(code)
        templates = (*of_log, *of_series, *stacks.sentences(code), *of_advice(code))
        self._patterns = [_pattern(template) for template in dict.fromkeys(templates)]
        self._codes = log.EXPLANATIONS.keys()
        self.explanation = next((text for text in (*of_log, *of_series)), UNEXPLAINED)
        message = series.CODES.get(code)
        self.advice = message.advice if message is not None else advice(code)

    def has_sentence(self, text: str) -> bool:
        return len(text) in self._ends(text, 0)

    def has_sentences(self, text: str) -> bool:
        """Whether the text consists of such sentences, with a space between each two."""
        starts = {0}
        for _ in range(_MOST_IN_EXPLANATION):
            ends = {end for start in starts for end in self._ends(text, start)}
            if len(text) in ends:
                return True
            starts = {end + 1 for end in ends if text.startswith(" ", end)}
        return False

    def _ends(self, text: str, start: int) -> Iterator[int]:
        """Where a sentence ends that starts there."""
        for pattern in self._patterns:
            match = pattern.match(text, start)
            if match and self._are_codes(match.groups()):
                yield match.end()

    def _are_codes(self, groups: tuple[str, ...]) -> bool:
        return all(code in self._codes for group in groups for code in group.split(", "))


@lru_cache(maxsize=256)
def _known(code: str) -> _Known:
    return _Known(code)


@lru_cache(maxsize=1024)
def _pattern(template: str) -> re.Pattern[str]:
    """Matches the sentence with numbers in its slots; what stands for codes is a group."""
    literals = [re.escape(text) for text in _SLOT.split(template)]
    slots = [_CODES if slot == _CODES_SLOT else _NUMBER for slot in _SLOT.findall(template)]
    parts = (part for pair in zip(literals, [*slots, ""], strict=True) for part in pair)
    return re.compile("".join(parts))
