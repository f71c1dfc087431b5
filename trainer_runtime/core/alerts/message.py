"""What an alert says. Closed templates; the slots are the alert's own words and checked figures.

Nothing of a log comes in here: whoever reads the message may be an agent.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trainer_runtime.core.alerts.alert import Alert, Onset, message_id
from trainer_runtime.core.alerts.condition import (
    FindingCondition,
    MetricCondition,
    SilenceCondition,
)
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.duration import spoken_duration
from trainer_runtime.core.protocol.lines import named

Kind = Literal["webhook", "slack", "discord", "command"]
KINDS: tuple[Kind, ...] = ("webhook", "slack", "discord", "command")
# Discord takes 2,000 characters.
_LONGEST_TEXT = 1500


@dataclass(frozen=True, slots=True)
class Place:
    """The run that a message is about, as it stands. `host`: what the operator's side calls it."""

    run_id: str
    host: str
    placement: int
    state: str
    step: int


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver gets; `id` is the same however often it gets it. `t`: Unix seconds."""

    id: str
    run: str
    host: str
    alert: str
    severity: str
    state: str
    step: int
    text: str
    t: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, fields: Fields) -> Message:
        """The message that `to_dict` described.

        Raises:
            DecodingError: it lacks a field, or has one of another type.
        """
        return cls(
            id=fields.text("id"),
            run=fields.text("run"),
            host=fields.text("host"),
            alert=fields.text("alert"),
            severity=fields.text("severity"),
            state=fields.text("state"),
            step=fields.integer("step"),
            text=fields.text("text"),
            t=fields.number("t"),
        )

    @classmethod
    def find(cls, fields: Fields) -> Message | None:
        """The same; None for what is not a message of this version."""
        try:
            return cls.of(fields)
        except ValueError:
            return None


def message_of(alert: Alert, onset: Onset, place: Place, now: float) -> Message:
    """The message of an onset; `now` is when it is first told."""
    step = place.step if onset.step is None else onset.step
    told = f"{_told(alert, onset)} {place.run_id} is {place.state} at step {step} on {place.host}."
    return Message(
        id=message_id(alert, place.run_id, place.placement, onset),
        run=place.run_id,
        host=place.host,
        alert=alert.name,
        severity=alert.severity,
        state=place.state,
        step=step,
        text=f"{told} See: trainmaster status {place.run_id}"[:_LONGEST_TEXT],
        t=round(now, 3),
    )


def trial_message(destination: str, t: float, trial_id: str) -> Message:
    """What `alerts test` sends."""
    text = f"This is a test of the destination {destination}. No run is concerned."
    return Message(trial_id, "", "", "test", "info", "", 0, text, round(t, 3))


def body_for(kind: Kind, message: Message) -> dict[str, Any]:
    """The JSON object that a destination of this kind takes."""
    if kind in ("webhook", "command"):
        return message.to_dict()
    text = f"[{message.severity}] {message.alert}: {message.text} ({message.id})"
    if kind == "slack":
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return {"text": escaped}
    return {"content": text, "allowed_mentions": {"parse": []}}


def _told(alert: Alert, onset: Onset) -> str:
    condition, slots = alert.condition, onset.slots
    if isinstance(condition, MetricCondition):
        met = f"{condition.comparison} {condition.limit:g}"
        value = f"{condition.key} is {_figure(float(slots['value']))}, {met}"
        if condition.lasting_s is not None:
            return f"{value} for {spoken_duration(float(slots['lasted_s']))}."
        return f"{value} for {condition.count} points." if condition.count > 1 else f"{value}."
    if isinstance(condition, FindingCondition):
        where = f" at step {onset.step}" if onset.step is not None else ""
        return f"Finding {slots['code']} ({slots['severity']}){where} in attempt {onset.attempt}."
    if isinstance(condition, SilenceCondition):
        return f"The trainer has told nothing for {spoken_duration(float(slots['silent_s']))}."
    if slots["state"] == "lost":
        silent = spoken_duration(float(slots["silent_s"]))
        return f"The run is out of contact; nothing was heard for {silent}."
    reason = f" ({slots['reason']})" if "reason" in slots else ""
    return f"The run became {slots['state']}{reason}."


def _figure(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else named(value)
