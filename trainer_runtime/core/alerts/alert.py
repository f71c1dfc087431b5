"""An alert as host and client store it, and the onset of its condition."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.alerts.condition import Condition, parse_condition
from trainer_runtime.core.decoding import Fields, JsonRecord
from trainer_runtime.core.protocol.finding import Severity


@dataclass(frozen=True, slots=True)
class Alert(JsonRecord):
    """A condition on one run, and the destination of its messages.

    `id` is permanent: an alert that is created again under the same name has another id. `to` is
    the destination's name. Events before `since_t` (Unix seconds of the host) are ignored.
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

    @classmethod
    def of(cls, fields: Fields) -> Alert:
        """Raises:
        ValueError: a field is missing or has another type, or the condition doesn't parse.
        """
        alert = super(Alert, cls).of(fields)
        parse_condition(alert.when)
        return alert


@dataclass(frozen=True, slots=True)
class Onset:
    """When a condition began to be met; an alert reports each onset once.

    `mark` identifies it within its attempt and is the same whenever the same files are read.
    `slots` hold the validated values that fill the message.
    """

    attempt: int
    mark: str
    t: float
    step: int | None
    slots: Mapping[str, str | float | int] = field(default_factory=dict)


def alert_id(*parts: object) -> str:
    """Eight hexadecimal digits that identify an alert by its parts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]


def message_id(alert: Alert, run_id: str, placement: int, onset: Onset) -> str:
    """The deduplication id: a message that is sent twice carries the same one."""
    named = f"{alert.id}:{run_id}:{placement}:{onset.attempt}:{onset.mark}"
    return hashlib.sha256(named.encode()).hexdigest()[:16]
