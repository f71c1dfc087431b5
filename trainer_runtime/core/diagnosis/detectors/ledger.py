"""The findings of detectors as a bounded ledger: opened, raised in severity, closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.protocol.finding import SEVERITIES, Severity, finding_id

_MAX_CLOSED = 64

Value = float | str | list[Any] | None


@dataclass(slots=True)
class LedgerEntry:
    """One problem, open or closed.

    `onset` is where it began: an optimizer step, or milliseconds for telemetry. `step` is the step
    it began at, None where there was none. `values` are its figures by name, in the units that the
    names carry; a figure that is not finite is a string. `remedies` name patches, best first.
    `closed_at` is where it ended, in the unit of `onset`.
    """

    code: str
    attempt: int
    onset: int
    step: int | None
    severity: Severity
    confidence: float
    values: dict[str, Value] = field(default_factory=dict)
    remedies: list[str] = field(default_factory=list)
    closed_at: int | None = None

    def grow(self, severity: Severity) -> None:
        """Raise the severity to at least `severity`."""
        if SEVERITIES.index(severity) > SEVERITIES.index(self.severity):
            self.severity = severity

    def id(self, placement: int) -> str:
        """The finding's id, the same on host and client."""
        return finding_id(placement, self.attempt, self.code, self.onset)


class Ledger:
    """At most one open entry for each code, and the newest 64 closed entries."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt = attempt
        self._open: dict[str, LedgerEntry] = {}
        self._closed: deque[LedgerEntry] = deque(maxlen=_MAX_CLOSED)

    def open(
        self,
        code: str,
        onset: int,
        severity: Severity,
        *,
        step: int | None = None,
        confidence: float = 0.9,
        values: Mapping[str, Value] | None = None,
        remedies: tuple[str, ...] = (),
    ) -> LedgerEntry:
        """The open entry of this code; opened at `onset` if there is none."""
        entry = self._open.get(code)
        if entry is None:
            entry = self._reopen(code, onset)
            entry = entry or LedgerEntry(code, self.attempt, onset, step, severity, confidence)
            entry.values |= values or {}
            entry.remedies = list(remedies)
            self._open[code] = entry
        entry.grow(severity)
        return entry

    def get(self, code: str) -> LedgerEntry | None:
        """The open entry of this code."""
        return self._open.get(code)

    def close(self, code: str, at: int) -> None:
        entry = self._open.pop(code, None)
        if entry is not None:
            entry.closed_at = at
            self._closed.append(entry)

    def withdraw(self, code: str) -> None:
        """Remove an open entry that another one explains better."""
        self._open.pop(code, None)

    def close_all(self, at: int) -> None:
        for code in list(self._open):
            self.close(code, at)

    def all(self) -> list[LedgerEntry]:
        """Closed and open entries, by attempt and onset."""
        entries = [*self._closed, *self._open.values()]
        return sorted(entries, key=_order)

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "open": [_as_dict(entry) for entry in self._open.values()],
            "closed": [_as_dict(entry) for entry in self._closed],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        ledger = cls(data["attempt"])
        ledger._open = {body["code"]: LedgerEntry(**body) for body in data["open"]}
        ledger._closed.extend(LedgerEntry(**body) for body in data["closed"])
        return ledger

    def _reopen(self, code: str, onset: int) -> LedgerEntry | None:
        """The closed entry that would get the same id, opened again: the problem has continued."""
        for entry in self._closed:
            if (entry.code, entry.attempt, entry.onset) == (code, self.attempt, onset):
                self._closed.remove(entry)
                entry.closed_at = None
                return entry
        return None


def _order(entry: LedgerEntry) -> tuple[int, bool, int]:
    return entry.attempt, entry.step is None, entry.onset


def _as_dict(entry: LedgerEntry) -> dict[str, Any]:
    body = {name: getattr(entry, name) for name in LedgerEntry.__slots__}
    return {**body, "values": dict(entry.values), "remedies": list(entry.remedies)}
