"""What an alert says. Closed templates; the slots are the alert's own words and checked figures.

No log text is included: the reader of a message may be an agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.alerts.alert import Alert, Onset, message_id
from trainer_runtime.core.alerts.condition import (
    FindingCondition,
    MetricCondition,
    SilenceCondition,
)
from trainer_runtime.core.protocol.alert_record import Message
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import number_text, spoken_duration
from trainer_runtime.core.protocol.text import cleaned, code_word

# Discord takes 2,000 characters.
_LONGEST_TEXT = 1500
# An onset that is reported later than this is one of the past.
_LATE_S = 3600.0
_HANGS = frozenset({"stall", "hang_collective", "hang_data"})


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
    is_over, passed_s = _is_over(alert, onset, place), now - onset.t
    ago = f", {spoken_duration(passed_s)} ago" if passed_s >= _LATE_S else ""
    is_past = is_over or bool(ago)
    current, at = ("now ", place.step) if is_past else ("", step)
    summary = (
        f"{_describe(alert, onset, is_over)}{ago}. {place.run_id} is {current}{place.state} at "
        f"step {at} on {place.host}."
    )
    advice = f"On the machine it was launched from: {command('status', place.run_id)}"
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


def _is_over(alert: Alert, onset: Onset, place: Place) -> bool:
    """Whether the run's state contradicts that what was met still lasts."""
    condition, slots = alert.condition, onset.slots
    if isinstance(condition, SilenceCondition):
        return place.state not in ("running", "lost")
    if isinstance(condition, FindingCondition):
        return slots["code"] in _HANGS and place.step > (onset.step or place.step)
    return slots.get("state", place.state) != place.state


def _describe(alert: Alert, onset: Onset, is_over: bool) -> str:
    """What was met, without a full stop."""
    condition, slots = alert.condition, onset.slots
    if isinstance(condition, MetricCondition):
        met = f"{condition.comparison} {condition.limit:g}"
        value = f"{condition.key} is {number_text(float(slots['value']))}, {met}"
        if condition.lasting_s is not None:
            return f"{value} for {spoken_duration(float(slots['lasted_s']))}"
        return f"{value} for {condition.count} points" if condition.count > 1 else value
    if isinstance(condition, FindingCondition):
        where = f" at step {onset.step}" if onset.step is not None else ""
        found = f"{code_word(str(slots['code']))} ({slots['severity']})"
        over = ", which is over" if is_over else ""
        return f"Finding {found}{where} in attempt {onset.attempt}{over}"
    if isinstance(condition, SilenceCondition):
        reported = "reported" if is_over else "has reported"
        return f"The trainer {reported} nothing for {spoken_duration(float(slots['silent_s']))}"
    if slots["state"] == "lost":
        silent, is_out = spoken_duration(float(slots["silent_s"])), "was" if is_over else "is"
        return f"The run {is_out} out of contact; nothing was heard for {silent}"
    reason = f" ({code_word(str(slots['reason']))})" if "reason" in slots else ""
    return f"The run became {slots['state']}{reason}"
