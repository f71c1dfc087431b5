"""Answers about alerts."""

from typing import Literal

from trainer_runtime.core.alerts.destination_kinds import KindName
from trainmaster.answers.base import Answer, WholeAnswer


class AlertRow(Answer):
    """An alert. Without `run_id` it applies to every run. `problem`: why it can't be sent now."""

    name: str
    severity: Literal["info", "warning", "critical"]
    when: str
    to: str
    sender: Literal["box", "operator"]
    origin: Literal["spec", "added", "default"]
    run_id: str | None = None
    problem: str | None = None


class AlertMessageRow(Answer):
    """A message and its state: `fired` waits to be sent, `failed` is retried in `next_try_s`;
    without that it was given up. `t`: Unix seconds."""

    id: str
    alert: str
    to: str
    sender: Literal["box", "operator"]
    t: float
    phase: Literal["fired", "sent", "failed"]
    tries: int | None = None
    reason: str | None = None
    next_try_s: float | None = None
    text: str


class AlertsAnswer(WholeAnswer):
    """The alerts of one run with its newest messages, or all alerts."""

    alerts: list[AlertRow]
    destinations: list[str]
    messages: list[AlertMessageRow] | None = None


class AlertAddedAnswer(WholeAnswer):
    """`pending`: not delivered to the host yet. `note`: a possible mistake in the condition."""

    alert: AlertRow
    pending: bool | None = None
    note: str | None = None
    next_step: str


class AlertRemovedAnswer(WholeAnswer):
    name: str
    run_id: str | None = None
    pending: bool | None = None


class AlertTestAnswer(WholeAnswer):
    """The result of a test message. `untrusted_said` is the receiver's text."""

    destination: str
    kind: KindName
    id: str
    sent: bool
    status: int | None = None
    reason: str | None = None
    untrusted_said: str | None = None
    note: str | None = None
