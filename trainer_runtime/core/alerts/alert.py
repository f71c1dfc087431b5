"""An alert as both sides keep it, and one thing that it tells of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.alerts.condition import Condition, parse_condition
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.finding import Severity, severity_of


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition of one run, and where it is told.

    `id` names this alert for ever: one of the same name that is made anew has another. `to` is the
    destination's name. What happened before `since_t` (Unix seconds of the box) is left out.
    """

    id: str
    name: str
    severity: Severity
    when: str
    to: str
    since_t: float = 0.0

    @property
    def condition(self) -> Condition:
        return parse_condition(self.when)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "severity": self.severity,
            "when": self.when,
            "to": self.to,
            "since_t": self.since_t,
        }

    @classmethod
    def of(cls, fields: Fields) -> Alert:
        """Raises:
        ValueError: a field is missing or has another type, or the condition doesn't parse.
        """
        alert = cls(
            id=fields.text("id"),
            name=fields.text("name"),
            severity=severity_of(fields),
            when=fields.text("when"),
            to=fields.text("to"),
            since_t=fields.number("since_t", 0.0),
        )
        parse_condition(alert.when)
        return alert


@dataclass(frozen=True, slots=True)
class Onset:
    """Where a condition began to be met: what an alert tells of, once.

    `mark` names it within its attempt, the same whenever the same files are read. `slots` hold the
    checked figures and words that the message is made of.
    """

    attempt: int
    mark: str
    t: float
    step: int | None
    slots: Mapping[str, str | float | int] = field(default_factory=dict)


def alert_id(*parts: object) -> str:
    """Eight hexadecimal digits for what an alert is made of."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]


def message_id(alert: Alert, run_id: str, placement: int, onset: Onset) -> str:
    """The dedupe id: a message that is sent twice carries the same one."""
    named = f"{alert.id}:{run_id}:{placement}:{onset.attempt}:{onset.mark}"
    return hashlib.sha256(named.encode()).hexdigest()[:16]
