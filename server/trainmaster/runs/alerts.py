"""Adding, listing, removing and trying alerts."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.alerts.message import trial_message
from trainer_runtime.core.protocol.alert_record import Told
from trainmaster.alerts.destinations import address, destinations, known_destination
from trainmaster.alerts.rules import add_row, alerts_of, record_defaults
from trainmaster.alerts.send import try_once
from trainmaster.alerts.unknown_metric import metric_note
from trainmaster.runs.advance import look_after, look_in
from trainmaster.store.control.alerts import EVERY_RUN, MessageRow
from trainmaster.store.control.alerts import AlertRow as Recorded
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.alerts import (
    AlertAddedAnswer,
    AlertMessageRow,
    AlertRemovedAnswer,
    AlertRow,
    AlertsAnswer,
    AlertTestAnswer,
)
from trainmaster.words.errors import StateError
from trainmaster.words.settings import Destination

_NEWEST_MESSAGES = 20
_DELIVER_S = 20.0
_COMMAND_FROM_BOX = "Boxes send it, and run no command: it is told only once its run is over."


async def add_alert(
    workspace: Workspace,
    *,
    when: str,
    to: str | None = None,
    name: str | None = None,
    severity: str = "warning",
    run: str | None = None,
) -> AlertAddedAnswer:
    """Have a destination of the settings told when a condition is met, by one run or by any.

    It tells of what happens from now on. `to` may be left out where there is one destination.

    Raises:
        UsageError: `CONDITION_INVALID`, `DESTINATION_UNKNOWN`, `BAD_ARGUMENT`.
        StateError: `RUN_NOT_FOUND`, `RUN_ENDED`, `ALERT_EXISTS`, `SETTINGS_NOT_READABLE`.
    """
    found = workspace.control.run(run) if run else None
    row = add_row(workspace, when=when, to=to, name=name, severity=severity, run=found)
    reached = await _tell_boxes(workspace, row, found)
    return AlertAddedAnswer(
        alert=_shown(workspace, row),
        pending=None if reached else True,
        note=await metric_note(workspace, when, found),
        next_step=f"trainmaster alerts test {row.to}",
    )


async def list_alerts(workspace: Workspace, run: str | None = None) -> AlertsAnswer:
    """Every alert; of one run, those that are for it, and the newest messages about it.

    Raises:
        StateError: `RUN_NOT_FOUND`, `SETTINGS_NOT_READABLE`.
    """
    known = list(destinations(workspace.home))
    record_defaults(workspace)
    if run is None:
        rows = workspace.control.alerts.all()
        shown = [_shown(workspace, row) for row in rows]
        return AlertsAnswer(alerts=shown, destinations=known)
    found = workspace.control.run(run)
    await look_in(workspace, found.run_id)
    alerts_of(workspace, found)
    rows = workspace.control.alerts.of(found.run_id)
    return AlertsAnswer(
        alerts=[_shown(workspace, row) for row in rows],
        destinations=known,
        messages=_messages(workspace, found.run_id),
    )


async def remove_alert(
    workspace: Workspace, name: str, run: str | None = None
) -> AlertRemovedAnswer:
    """Remove an alert of one run, or one of every run. One of a spec stays away, too, until the
    spec says something else of it.

    Raises:
        StateError: `RUN_NOT_FOUND`, `ALERT_NOT_FOUND`, `SETTINGS_NOT_READABLE`.
    """
    found = workspace.control.run(run) if run else None
    record_defaults(workspace)
    run_id = found.run_id if found else EVERY_RUN
    rows = [row for row in workspace.control.alerts.of(run_id) if row.run_id == run_id]
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        whose = f"run {run_id}" if run_id else "every run"
        raise StateError(
            "ALERT_NOT_FOUND",
            f"No alert of {whose} is called {name!r}.",
            f"`trainmaster alerts list{f' {run_id}' if run_id else ''}` shows them; one of a "
            "single run is removed with the run's name behind it.",
            field="name",
        )
    workspace.control.alerts.remove(row.id, time.time())
    reached = await _tell_boxes(workspace, row, found)
    return AlertRemovedAnswer(name=name, run_id=run_id or None, pending=None if reached else True)


async def test_destination(workspace: Workspace, name: str) -> AlertTestAnswer:
    """Send a test message to a destination, or to that of an alert of this name, from here.

    Raises:
        StateError: `ALERT_NOT_FOUND`, `SECRET_MISSING`, `SECRET_INVALID`, `SETTINGS_NOT_READABLE`.
        UsageError: `DESTINATION_UNKNOWN`.
    """
    to = _destination_of(workspace, name)
    given = known_destination(workspace.home, to, "name")
    message = trial_message(to, time.time(), secrets.token_hex(8))
    answer = await try_once(workspace, to, given, message)
    from_box = given.kind != "command" and (given.sender or "box") == "box"
    return AlertTestAnswer(
        destination=to,
        kind=given.kind,
        id=message.id,
        sent=answer.get("sent") is True,
        status=answer.get("status"),
        reason=answer.get("reason"),
        said=answer.get("said") or None,
        note="Sent from this machine; runs' boxes send theirs themselves." if from_box else None,
    )


async def _tell_boxes(workspace: Workspace, row: Recorded, run: Run | None) -> bool:
    """Bring what has changed to the boxes that it concerns; False where one was not reached."""
    if row.sender != "box":
        return True
    runs: Sequence[Run] = [run] if run else workspace.control.runs(only_open=True)
    try:
        async with asyncio.timeout(_DELIVER_S):
            return all([await look_after(workspace, one.run_id) for one in runs if not one.closed])
    except TimeoutError:
        return False


def _destination_of(workspace: Workspace, name: str) -> str:
    if name in destinations(workspace.home):
        return name
    row = next((row for row in workspace.control.alerts.all() if row.name == name), None)
    if row is None:
        known = ", ".join(destinations(workspace.home)) or "none yet"
        raise StateError(
            "ALERT_NOT_FOUND",
            f"Neither a destination nor an alert is called {name!r}.",
            f"Destinations of {workspace.home.settings}: {known}.",
            field="name",
        )
    return row.to


def _shown(workspace: Workspace, row: Recorded) -> AlertRow:
    return AlertRow(
        name=row.name,
        severity=row.severity,
        when=row.when,
        to=row.to,
        sender=row.sender,
        origin=row.origin,
        run_id=row.run_id or None,
        problem=_problem(workspace, row),
    )


def _problem(workspace: Workspace, row: Recorded) -> str | None:
    """Why it can't be told now."""
    given: Destination | None = destinations(workspace.home).get(row.to)
    if given is None:
        return f"The settings name no destination {row.to} any more."
    if given.kind == "command":
        return _COMMAND_FROM_BOX if row.sender == "box" else None
    try:
        address(workspace.home, row.to, given, os.environ)
    except StateError as error:
        return f"{error.code}: {error.message}"
    return None


def _messages(workspace: Workspace, run_id: str) -> list[AlertMessageRow]:
    """The box's and this side's; what the box gave up stands once, as it is here."""
    here = {row.id: _of_ours(row) for row in workspace.control.alerts.messages(run_id)}
    view = load_view(workspace, run_id)
    box = {
        name: _of_the_box(name, told, view.now)
        for name, told in view.record.alerts.told.items()
        if name not in here
    }
    return sorted([*here.values(), *box.values()], key=lambda row: row.t)[-_NEWEST_MESSAGES:]


def _of_ours(row: MessageRow) -> AlertMessageRow:
    told = Told(
        row.message.to_dict(), row.to, row.fired_t, row.phase, row.tries, row.due_t, row.reason
    )
    return _row(row.id, told, "operator", time.time())


def _of_the_box(name: str, told: Told, now: float) -> AlertMessageRow:
    return _row(name, told, "box", now)


def _row(name: str, told: Told, sender: Any, now: float) -> AlertMessageRow:
    waits = told.due_t is not None and told.tries > 0
    return AlertMessageRow(
        id=name,
        alert=str(told.message.get("alert")),
        to=told.to,
        sender=sender,
        t=told.fired_t,
        phase=told.phase,  # type: ignore[arg-type]
        tries=told.tries or None,
        reason=told.reason,
        next_try_s=max(0.0, round((told.due_t or now) - now, 1)) if waits else None,
        text=str(told.message.get("text")),
    )
