"""What people see of answers about alerts."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.answers.alerts import (
    AlertAddedAnswer,
    AlertMessageRow,
    AlertRemovedAnswer,
    AlertRow,
    AlertsAnswer,
    AlertTestAnswer,
)
from trainmaster.cli.views.blocks import Block, Grid, view


@view.register
def _(answer: AlertsAnswer) -> list[Block]:
    if not answer.destinations:
        return ["No destination is set: name one in the settings (docs/alerts.md)."]
    blocks: list[Block] = [f"Destinations: {', '.join(answer.destinations)}"]
    rows = [
        (row.name, row.severity, row.when, row.to, row.sender, row.run_id or "every run")
        for row in answer.alerts
    ]
    if rows:
        blocks.append(Grid(("alert", "severity", "when", "to", "sent by", "of"), rows))
    blocks += [f"{row.name}: {row.problem}" for row in answer.alerts if row.problem]
    return blocks + [_message(row) for row in answer.messages or []]


@view.register
def _(answer: AlertAddedAnswer) -> list[Block]:
    row: AlertRow = answer.alert
    return [
        f"{row.name} ({row.severity}): {row.when}, sent to {row.to} by the {row.sender}",
        *(["The host has not been reached yet; delivery is pending."] * bool(answer.pending)),
        *([row.problem] if row.problem else []),
        *([f"Note: {answer.note}"] if answer.note else []),
        f"Next: {answer.next_step}",
    ]


@view.register
def _(answer: AlertRemovedAnswer) -> list[Block]:
    pending = "; delivered when the host can be reached" if answer.pending else ""
    return [f"Removed {answer.name} of {answer.run_id or 'every run'}{pending}"]


@view.register
def _(answer: AlertTestAnswer) -> list[Block]:
    status = f" ({answer.status})" if answer.status is not None else ""
    came = f"taken{status}" if answer.sent else f"not taken: {answer.reason}"
    said = [f"It said: {answer.untrusted_said}"] if answer.untrusted_said else []
    note = [answer.note] if answer.note else []
    return [f"{answer.destination} ({answer.kind}): {came}", *said, *note]


def _message(row: AlertMessageRow) -> str:
    tries = f" after {row.tries} failed tries ({row.reason})" if row.tries and row.reason else ""
    again = "" if row.next_try_s is None else f", next in {spoken_duration(row.next_try_s)}"
    given_up = row.phase == "failed" and row.next_try_s is None
    phase = "given up" if given_up else row.phase
    return f"- {row.alert} to {row.to}: {phase}{tries}{again}: {row.text} ({row.id})"
