"""What detectors have seen: opened, grown in severity, closed. Bounded, and fit for JSON."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.protocol.finding import SEVERITIES, Severity, finding_id

_MOST_CLOSED = 64

Value = float | str | list[Any] | None


@dataclass(slots=True)
class Sighting:
    """One thing that is or was wrong.

    `onset` names its begin: an optimizer step, or milliseconds where it is of the machine. `step`
    is the step it began at, None where there was none. `values` are its figures by name, in the
    units that the names carry; a figure that is no number stands as a string. `remedies` name
    patches, best first. `closed_at` is the onset-like moment at which it was over.
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
        """Make it at least as severe as `severity`."""
        if SEVERITIES.index(severity) > SEVERITIES.index(self.severity):
            self.severity = severity

    def id(self, placement: int) -> str:
        """The same on every side that saw the same."""
        return finding_id(placement, self.attempt, self.code, self.onset)


class Ledger:
    """At most one open sighting of a code, and the newest 64 closed ones."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt = attempt
        self._open: dict[str, Sighting] = {}
        self._closed: deque[Sighting] = deque(maxlen=_MOST_CLOSED)

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
    ) -> Sighting:
        """The open sighting of this code, new from `onset` if there is none."""
        found = self._open.get(code)
        if found is None:
            found = self._reopened(code, onset)
            found = found or Sighting(code, self.attempt, onset, step, severity, confidence)
            found.values |= values or {}
            found.remedies = list(remedies)
            self._open[code] = found
        found.grow(severity)
        return found

    def get(self, code: str) -> Sighting | None:
        """The open sighting of this code."""
        return self._open.get(code)

    def close(self, code: str, at: int) -> None:
        found = self._open.pop(code, None)
        if found is not None:
            found.closed_at = at
            self._closed.append(found)

    def withdraw(self, code: str) -> None:
        """Forget an open sighting that another one explains better."""
        self._open.pop(code, None)

    def close_all(self, at: int) -> None:
        for code in list(self._open):
            self.close(code, at)

    def all(self) -> list[Sighting]:
        """Closed and open ones, by attempt and onset."""
        found = [*self._closed, *self._open.values()]
        return sorted(found, key=_order)

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "open": [_described(found) for found in self._open.values()],
            "closed": [_described(found) for found in self._closed],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Ledger:
        ledger = cls(data["attempt"])
        ledger._open = {body["code"]: Sighting(**body) for body in data["open"]}
        ledger._closed.extend(Sighting(**body) for body in data["closed"])
        return ledger

    def _reopened(self, code: str, onset: int) -> Sighting | None:
        """The closed one that would bear the same id: what went on after all."""
        for found in self._closed:
            if (found.code, found.attempt, found.onset) == (code, self.attempt, onset):
                self._closed.remove(found)
                found.closed_at = None
                return found
        return None


def _order(sighting: Sighting) -> tuple[int, bool, int]:
    return sighting.attempt, sighting.step is None, sighting.onset


def _described(sighting: Sighting) -> dict[str, Any]:
    body = {name: getattr(sighting, name) for name in Sighting.__slots__}
    return {**body, "values": dict(sighting.values), "remedies": list(sighting.remedies)}
