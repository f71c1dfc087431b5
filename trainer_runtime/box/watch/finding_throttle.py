"""Which findings the journal tells of: each once, changes not too often, never without bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trainer_runtime.core.protocol.event import Event
from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal_lines import (
    FindingClosed,
    FindingReported,
    FindingsMuted,
    journal_line,
)

# Of one code and attempt, critical ones apart: so many at once, and one more an hour.
MOST_AT_ONCE = 24
_REFILL_S = 3600.0
# What has changed is told at once where it counts, else after a minute, two, four, … an hour.
_FIRST_INTERVAL_S = 60.0
_LONGEST_INTERVAL_S = 3600.0
_MOST_URGENT = 8

Write = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Present:
    """A finding of the present attempt; not `is_open`: it is over."""

    finding: Finding
    is_open: bool = True


@dataclass(slots=True)
class _Told:
    attempt: int
    finding: Finding
    t: float
    tied_to: str | None = None
    writes: int = 1
    is_open: bool = True


@dataclass(slots=True)
class _Budget:
    first_t: float
    spent: int = 0
    muted: bool = False


class Telling:
    """Compares what is found with what was told. What was told is what `hear` heard."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._told: dict[str, _Told] = {}
        self._budgets: dict[tuple[int, str, bool], _Budget] = {}

    def open_ids(self, attempt: int) -> dict[str, str]:
        """The ids under which an attempt's codes were told that are not over."""
        return {
            told.finding.code: name
            for name, told in self._told.items()
            if told.is_open and told.attempt == attempt and told.tied_to is None
        }

    def has_told_the_end(self, name: str) -> bool:
        """Whether a finding of this id was told, and that it is over."""
        return name in self._told and not self._told[name].is_open

    def hear(self, event: Event) -> None:
        """Take in an event of the journal: of an earlier supervisor, or this one's own."""
        line = journal_line(event)
        if isinstance(line, FindingReported):
            self._opened(event.t, line)
        elif isinstance(line, FindingClosed):
            told = self._told.get(line.id)
            if told is not None:
                told.is_open = False
        elif isinstance(line, FindingsMuted):
            key = (line.attempt, line.code, line.critical)
            self._budgets.setdefault(key, _Budget(event.t)).muted = True

    def tell(
        self, attempt: int, present: Iterable[Present], now: float, *, settle: bool = False
    ) -> None:
        """Write what is new, and what has changed; `settle`: every change, as the last chance."""
        for one in present:
            known = self._told.get(one.finding.id)
            if known is None or (one.is_open and not known.is_open):
                due = self._may_open(attempt, one.finding, now)
            elif known.is_open:
                due = _has_changed(known, one.finding, now, settle or not one.is_open)
            else:
                due = False
            if due:
                self._write("finding", {"attempt": attempt, "finding": one.finding.to_dict()})

    def tell_while(self, code: str, attempt: int, finding: Finding | None, now: float) -> None:
        """Write what somebody else found out; it is open as long as what `code` names, or until it
        is found to be something else, or nothing."""
        for name, told in list(self._told.items()):
            is_another = finding is None or name != finding.id
            if told.is_open and is_another and (told.attempt, told.tied_to) == (attempt, code):
                self._write("finding_closed", {"attempt": attempt, "id": name})
        if finding is None:
            return
        known = self._told.get(finding.id)
        if known is not None and known.is_open and _is_same(known.finding, finding):
            return
        if self._may_open(attempt, finding, now):
            fields = {"attempt": attempt, "finding": finding.to_dict(), "while": code}
            self._write("finding", fields)

    def close_others(self, attempt: int, present: Iterable[Present]) -> None:
        """Write that what was told and isn't open any more is over."""
        still_open = {one.finding.id for one in present if one.is_open}
        codes = {one.finding.code for one in present if one.is_open}
        for name, told in list(self._told.items()):
            goes_on = told.attempt == attempt and told.tied_to in codes
            if told.is_open and name not in still_open and not goes_on:
                self._write("finding_closed", {"attempt": told.attempt, "id": name})

    def _may_open(self, attempt: int, finding: Finding, now: float) -> bool:
        key = _key(attempt, finding.code, finding.severity)
        budget = self._budgets.get(key)
        if budget is None:
            return True
        if budget.spent < MOST_AT_ONCE + (now - budget.first_t) / _REFILL_S:
            return True
        if not budget.muted:
            fields = {"attempt": attempt, "code": finding.code, "critical": key[2]}
            self._write("findings_muted", fields)
        return False

    def _opened(self, t: float, line: FindingReported) -> None:
        finding = line.finding
        known = self._told.get(finding.id)
        if known is not None and known.is_open:
            known.finding, known.t, known.writes = finding, t, known.writes + 1
            return
        self._told[finding.id] = _Told(line.attempt, finding, t, line.tied_to)
        key = _key(line.attempt, finding.code, finding.severity)
        self._budgets.setdefault(key, _Budget(t)).spent += 1


def _key(attempt: int, code: str, severity: str) -> tuple[int, str, bool]:
    return attempt, code, severity == "critical"


def _has_changed(known: _Told, finding: Finding, now: float, settle: bool) -> bool:
    if _is_same(known.finding, finding):
        return False
    before = known.finding
    counts = finding.severity != before.severity or _patches(finding) != _patches(before)
    if settle or (counts and known.writes <= _MOST_URGENT):
        return True
    interval_s = min(_LONGEST_INTERVAL_S, _FIRST_INTERVAL_S * 2.0 ** min(10, known.writes - 1))
    return now - known.t >= interval_s


def _is_same(one: Finding, other: Finding) -> bool:
    """Whether the journal would hold the same of both."""
    return one.to_dict() == other.to_dict()


def _patches(finding: Finding) -> list[str]:
    return [patch.id for patch in finding.patches]
