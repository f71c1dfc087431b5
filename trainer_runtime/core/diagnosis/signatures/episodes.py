"""The failures of a log in episodes: those of the last one, survived ones, cumulative ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.diagnosis.signatures.catalogue import CATALOGUE, ROOT_EXITS
from trainer_runtime.core.diagnosis.signatures.line_matcher import KEPT_LINE_BYTES, Match
from trainer_runtime.core.diagnosis.signatures.log_blocks import Line
from trainer_runtime.core.diagnosis.signatures.shapes import ShapeKind
from trainer_runtime.core.diagnosis.signatures.signature import Occurrence
from trainer_runtime.core.diagnosis.signatures.slots import Slots, rank_of

# Words of lines that are not failures but report how one ended; as a signature's keywords.
MARKERS = (
    *("cause+root", "exitcode", "childfailederror", "restarting", "retry", "retrying", "trying"),
    *("resuming", "resumed", "restart+count", "continuing+checkpoint"),
    *("restoring+checkpoint", "restored+checkpoint"),
    *("halving", "skipping+batch", "reducing+batch", "continuing", "recovered", "falling+back"),
)
_MAX_RANKS = 64
_BY_NAME = {one.name: one for one in (*CATALOGUE, *ROOT_EXITS.values())}
_ROOT = re.compile(r"^\W*Root Cause\b")
_ROOT_LINES = 10
_ROOT_RANK = re.compile(r"^\s*rank\s*: (\d{1,6})\b")
_ROOT_EXIT = re.compile(r"^\s*exitcode\s*: (-?\d{1,3})\b")
_DIED = re.compile(r"ChildFailedError|\(exitcode: |Restarting worker group|workers? restart")
_RETRIES = re.compile(
    r"(?i)\b(?:retry(?:ing)?|trying (?:again|with|a |batch)|halving|skipping (?:this |the |bad )?"
    r"(?:batch|step|sample)|reducing (?:the )?(?:micro.?)?batch|continuing|recovered|"
    r"falling back)\b"
)
# A new process, which continues what the failure ended.
_RESUMES = re.compile(
    r"(?i)\bresum(?:ing|ed) (?:\w+ ){0,3}(?:from|at)\b|\brestart count [1-9]"
    r"|\bcontinuing training from checkpoint"
    r"|\brestor(?:ing|ed) (?:\w+ ){0,3}from (?:\w+ )?checkpoint"
)


@dataclass(slots=True)
class Episode:
    """The failures since training last made progress, by signature name. `root_*`: the first
    failure in torchrun's summary; `died`: a process ended in it."""

    occurrences: dict[str, Occurrence] = field(default_factory=dict)
    root_rank: int | None = None
    root_exit: int | None = None
    died: bool = False

    @property
    def is_survived(self) -> bool:
        """Whether training continued after every failure of it."""
        return all(occurrence.settled for occurrence in self.occurrences.values())


class EpisodeLog:
    """Records matches and progress line by line.

    `survived` are failures that ended a process while training came back, by code; `cumulative`
    those that count by their number over the whole log, by signature name. `unsettled` are the
    failures that lines of progress can still settle; `summary_left` counts the lines that are left
    of torchrun's summary of the root cause.
    """

    def __init__(self) -> None:
        self.episode = Episode()
        self.survived: dict[str, Occurrence] = {}
        self.cumulative: dict[str, Occurrence] = {}
        self.unsettled: list[Occurrence] = []
        self.summary_left = 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, for `from_dict`."""
        episode = self.episode
        return {
            "occurrences": _described(episode.occurrences),
            "root_rank": episode.root_rank,
            "root_exit": episode.root_exit,
            "died": episode.died,
            "survived": _described(self.survived),
            "cumulative": _described(self.cumulative),
            "unsettled": [occurrence.signature.name for occurrence in self.unsettled],
            "summary_left": self.summary_left,
        }

    @classmethod
    def from_dict(cls, memory: Mapping[str, Any]) -> EpisodeLog:
        """Raises:
        KeyError: a signature of another version.
        """
        log = cls()
        occurrences = _occurrences(memory["occurrences"])
        root = memory["root_rank"], memory["root_exit"]
        log.episode = Episode(occurrences, *root, memory["died"])
        log.survived = _occurrences(memory["survived"])
        log.cumulative = _occurrences(memory["cumulative"])
        by_name = log.cumulative | occurrences
        log.unsettled = [by_name[name] for name in memory["unsettled"]]
        log.summary_left = memory["summary_left"]
        return log

    def record(self, match: Match, line: Line) -> None:
        """A signature matches a line."""
        signature, slots = match.signature, match.slots
        recorded: Mapping[str, Occurrence] = self.cumulative
        if not signature.cumulative:
            self._close_survived_episode()
            recorded = self.episode.occurrences
        occurrence = recorded.get(signature.name) or self._first(match, line)
        if signature.cumulative and slots:
            occurrence.slots = {**occurrence.slots, **slots}
        self._count(occurrence)
        rank = rank_of(line.text)
        if rank is None and "rank" in slots:
            rank = int(slots["rank"])
        if rank is not None and len(occurrence.ranks) < _MAX_RANKS:
            occurrence.ranks.add(rank)

    def repeat(self, names: tuple[str, ...]) -> None:
        """Cumulative signatures match again, on a line that was not read."""
        for name in names:
            self._count(self.cumulative[name])

    def progress(self, kind: ShapeKind) -> None:
        """Training made progress: enough of it settles a failure."""
        settled = False
        for occurrence in self.unsettled:
            if kind.loss or not occurrence.signature.cumulative:
                occurrence.progress_since += 1
                settled = settled or occurrence.settled
        if settled:
            self.unsettled = [occurrence for occurrence in self.unsettled if not occurrence.settled]

    def marker(self, text: str) -> None:
        """A line that reports how a failure ended: in a restart, a retry, torchrun's summary."""
        if _ROOT.search(text):
            self.summary_left = _ROOT_LINES
        if _DIED.search(text) and self.episode.occurrences and not self.episode.is_survived:
            self.episode.died = True
        if _RESUMES.search(text):
            for occurrence in self.unsettled:
                occurrence.resume()
        if _RETRIES.search(text):
            for occurrence in self.unsettled:
                if occurrence.signature.retryable and not occurrence.progress_since:
                    occurrence.retried = True

    def summary_line(self, line: Line, text: str) -> None:
        """A line below torchrun's `Root Cause (first observed failure)`."""
        self.summary_left -= 1
        rank, code = _ROOT_RANK.search(text), _ROOT_EXIT.search(text)
        if rank:
            self.episode.root_rank = int(rank[1])
        if code:
            signature = ROOT_EXITS.get(int(code[1]))
            root_rank = self.episode.root_rank
            slots: Slots = {} if root_rank is None else {"rank": root_rank}
            if signature is not None:
                self.record(Match(signature, slots, text.encode()[:KEPT_LINE_BYTES]), line)
            self.episode.root_exit = int(code[1])
            self.episode.died = True

    def _first(self, match: Match, line: Line) -> Occurrence:
        signature = match.signature
        occurrence = Occurrence(
            signature, line.offset, match.near, dict(match.slots), line.context, count=0
        )
        recorded = self.cumulative if signature.cumulative else self.episode.occurrences
        recorded[signature.name] = occurrence
        return occurrence

    def _count(self, occurrence: Occurrence) -> None:
        occurrence.count += 1
        occurrence.progress_since = 0
        occurrence.retried = False
        if all(unsettled is not occurrence for unsettled in self.unsettled):
            self.unsettled.append(occurrence)

    def _close_survived_episode(self) -> None:
        episode = self.episode
        if not episode.occurrences or not episode.is_survived:
            return
        for occurrence in episode.occurrences.values():
            if episode.died:
                self.survived.setdefault(occurrence.code, occurrence)
        self.unsettled = [
            occurrence for occurrence in self.unsettled if occurrence.signature.cumulative
        ]
        self.episode = Episode()


def _described(occurrences: Mapping[str, Occurrence]) -> dict[str, Any]:
    return {
        key: [occurrence.signature.name, occurrence.to_dict()]
        for key, occurrence in occurrences.items()
    }


def _occurrences(memory: Mapping[str, Any]) -> dict[str, Occurrence]:
    return {
        key: Occurrence.from_dict(_BY_NAME[name], described)
        for key, (name, described) in memory.items()
    }
