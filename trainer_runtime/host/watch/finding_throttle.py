"""Limits which findings the journal records: each once, changes not too often, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainer_runtime.core.decoding import Fields
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
# An important change is recorded at once, others after a minute, two, four, … an hour.
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
class _Recorded:
    attempt: int
    finding: Finding
    t: float
    tied_to: str | None = None
    writes: int = 1
    is_open: bool = True

    def to_dict(self) -> dict[str, Any]:
        """For `of`, without deep copies."""
        body = {name: getattr(self, name) for name in self.__slots__}
        return {**body, "finding": self.finding.to_dict()}

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> _Recorded:
        finding = Finding.of(Fields(body["finding"], "finding"))
        return cls(**{**body, "finding": finding})


@dataclass(slots=True)
class _Budget:
    first_t: float
    spent: int = 0
    muted: bool = False


class FindingThrottle:
    """Compares findings with the recorded ones, which `hear` takes from the journal."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._recorded: dict[str, _Recorded] = {}
        self._budgets: dict[tuple[int, str, bool], _Budget] = {}

    def to_dict(self) -> dict[str, Any]:
        """What was heard so far, as JSON values for `restore`."""
        return {
            "recorded": [entry.to_dict() for entry in self._recorded.values()],
            "budgets": [[*key, asdict(budget)] for key, budget in self._budgets.items()],
        }

    def restore(self, memory: Mapping[str, Any]) -> None:
        """Take in what `to_dict` returned, instead of the journal's events until then."""
        recorded = [_Recorded.of(body) for body in memory["recorded"]]
        self._recorded = {entry.finding.id: entry for entry in recorded}
        self._budgets = {
            (attempt, code, critical): _Budget(**body)
            for attempt, code, critical, body in memory["budgets"]
        }

    def open_ids(self, attempt: int) -> dict[str, str]:
        """The ids under which an attempt's open codes were recorded."""
        return {
            entry.finding.code: name
            for name, entry in self._recorded.items()
            if entry.is_open and entry.attempt == attempt and entry.tied_to is None
        }

    def has_recorded_end(self, name: str) -> bool:
        """Whether a finding of this id was recorded, and its end as well."""
        return name in self._recorded and not self._recorded[name].is_open

    def hear(self, event: Event) -> None:
        """Take in an event of the journal: of an earlier supervisor, or this one's own."""
        line = journal_line(event)
        if isinstance(line, FindingReported):
            self._opened(event.t, line)
        elif isinstance(line, FindingClosed):
            entry = self._recorded.get(line.id)
            if entry is not None:
                entry.is_open = False
        elif isinstance(line, FindingsMuted):
            key = (line.attempt, line.code, line.critical)
            self._budgets.setdefault(key, _Budget(event.t)).muted = True

    def record(
        self, attempt: int, present: Iterable[Present], now: float, *, settle: bool = False
    ) -> None:
        """Write what is new, and what has changed; `settle`: every change, as the last chance."""
        for candidate in present:
            recorded = self._recorded.get(candidate.finding.id)
            if recorded is None or (candidate.is_open and not recorded.is_open):
                due = self._may_open(attempt, candidate.finding, now)
            elif recorded.is_open:
                due = _has_changed(
                    recorded, candidate.finding, now, settle or not candidate.is_open
                )
            else:
                due = False
            if due:
                self._write("finding", {"attempt": attempt, "finding": candidate.finding.to_dict()})

    def record_while(self, code: str, attempt: int, finding: Finding | None, now: float) -> None:
        """Write what somebody else found out; it is open as long as what `code` names, or until it
        is found to be something else, or nothing."""
        for name, entry in list(self._recorded.items()):
            is_another = finding is None or name != finding.id
            if entry.is_open and is_another and (entry.attempt, entry.tied_to) == (attempt, code):
                self._write("finding_closed", {"attempt": attempt, "id": name})
        if finding is None:
            return
        recorded = self._recorded.get(finding.id)
        if recorded is not None and recorded.is_open and _is_same(recorded.finding, finding):
            return
        if self._may_open(attempt, finding, now):
            fields = {"attempt": attempt, "finding": finding.to_dict(), "while": code}
            self._write("finding", fields)

    def close_others(self, attempt: int, present: Iterable[Present]) -> None:
        """Record the end of findings that were recorded and aren't open any more."""
        still_open = {candidate.finding.id for candidate in present if candidate.is_open}
        codes = {candidate.finding.code for candidate in present if candidate.is_open}
        for name, entry in list(self._recorded.items()):
            lasts = entry.attempt == attempt and entry.tied_to in codes
            if entry.is_open and name not in still_open and not lasts:
                self._write("finding_closed", {"attempt": entry.attempt, "id": name})

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
        recorded = self._recorded.get(finding.id)
        if recorded is not None and recorded.is_open:
            recorded.finding, recorded.t, recorded.writes = finding, t, recorded.writes + 1
            return
        self._recorded[finding.id] = _Recorded(line.attempt, finding, t, line.tied_to)
        key = _key(line.attempt, finding.code, finding.severity)
        self._budgets.setdefault(key, _Budget(t)).spent += 1


def _key(attempt: int, code: str, severity: str) -> tuple[int, str, bool]:
    return attempt, code, severity == "critical"


def _has_changed(recorded: _Recorded, finding: Finding, now: float, settle: bool) -> bool:
    if _is_same(recorded.finding, finding):
        return False
    before = recorded.finding
    counts = finding.severity != before.severity or _patches(finding) != _patches(before)
    if settle or (counts and recorded.writes <= _MOST_URGENT):
        return True
    interval_s = min(_LONGEST_INTERVAL_S, _FIRST_INTERVAL_S * 2.0 ** min(10, recorded.writes - 1))
    return now - recorded.t >= interval_s


def _is_same(finding: Finding, other: Finding) -> bool:
    """Whether the journal would hold the same of both."""
    return finding.to_dict() == other.to_dict()


def _patches(finding: Finding) -> list[str]:
    return [patch.id for patch in finding.patches]
