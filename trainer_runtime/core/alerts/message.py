"""What an alert says. Closed templates; the slots are the alert's own words and checked figures.

No log text is included: the reader of a message may be an agent.
"""

from __future__ import annotations

from typing import Any, Literal

from trainer_runtime.core.alerts.alert import Alert, Onset, message_id
from trainer_runtime.core.alerts.condition import (
    FindingCondition,
    MetricCondition,
    SilenceCondition,
)
from trainer_runtime.core.protocol.alert_record import Message
from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainer_runtime.core.protocol.text import cleaned, code_word
from trainer_runtime.core.records import dataclass

Kind = Literal["webhook", "slack", "discord", "command"]
KINDS: tuple[Kind, ...] = ("webhook", "slack", "discord", "command")
# Discord takes 2,000 characters.
_LONGEST_TEXT = 1500


@dataclass(frozen=True, slots=True)
class Place:
    """The current state of the run that a message is about. `host`: the client's name for it."""

    run_id: str
    host: str
    placement: int
    state: str
    step: int


def message_of(alert: Alert, onset: Onset, place: Place, now: float) -> Message:
    """The message of an onset; `now` is when it is first fired."""
    step = place.step if onset.step is None else onset.step
    summary = (
        f"{_describe(alert, onset)} {place.run_id} is {place.state} at step {step} on {place.host}."
    )
    advice = f"On the machine it was launched from: trainmaster status {place.run_id}"
    return Message(
        id=message_id(alert, place.run_id, place.placement, onset),
        run=place.run_id,
        host=place.host,
        alert=alert.name,
        severity=alert.severity,
        state=place.state,
        step=step,
        text=cleaned(f"{summary} {advice}", _LONGEST_TEXT),
        t=round(now, 3),
    )


def trial_message(destination: str, t: float, trial_id: str) -> Message:
    """The message that `alerts test` sends."""
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


def _describe(alert: Alert, onset: Onset) -> str:
    condition, slots = alert.condition, onset.slots
    if isinstance(condition, MetricCondition):
        met = f"{condition.comparison} {condition.limit:g}"
        value = f"{condition.key} is {number_text(float(slots['value']))}, {met}"
        if condition.lasting_s is not None:
            return f"{value} for {spoken_duration(float(slots['lasted_s']))}."
        return f"{value} for {condition.count} points." if condition.count > 1 else f"{value}."
    if isinstance(condition, FindingCondition):
        where = f" at step {onset.step}" if onset.step is not None else ""
        found = f"{code_word(str(slots['code']))} ({slots['severity']})"
        return f"Finding {found}{where} in attempt {onset.attempt}."
    if isinstance(condition, SilenceCondition):
        return f"The trainer has reported nothing for {spoken_duration(float(slots['silent_s']))}."
    if slots["state"] == "lost":
        silent = spoken_duration(float(slots["silent_s"]))
        return f"The run is out of contact; nothing was heard for {silent}."
    reason = f" ({code_word(str(slots['reason']))})" if "reason" in slots else ""
    return f"The run became {slots['state']}{reason}."
