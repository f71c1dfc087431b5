"""Lists alerts, and the newest messages about a run with their delivery. Only reads."""

from __future__ import annotations

import os
import time
from typing import Any

from trainer_runtime.core.protocol.alert_record import AlertDelivery
from trainmaster.alerts.destinations import address, destinations
from trainmaster.alerts.rules import listed_alerts
from trainmaster.answers.alerts import AlertMessageRow, AlertRow, AlertsAnswer
from trainmaster.errors.errors import StateError
from trainmaster.settings.settings import Destination
from trainmaster.store.control.alerts import AlertRow as Recorded
from trainmaster.store.control.alerts import MessageRow
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_NEWEST_MESSAGES = 20
_COMMAND_FROM_HOST = "Hosts send it, and run no command: it is sent only once its run is over."


async def list_alerts(workspace: Workspace, run: str | None = None) -> AlertsAnswer:
    """Every alert; for one run, those that apply to it, and the newest messages about it.

    Raises:
        StateError: `RUN_NOT_FOUND`, `SETTINGS_NOT_READABLE`.
    """
    names = list(destinations(workspace.home))
    view = None if run is None else await refresh(workspace, run)
    rows = listed_alerts(workspace, None if view is None else view.run)
    return AlertsAnswer(
        alerts=[shown_alert(workspace, row) for row in rows],
        destinations=names,
        messages=None if view is None else _messages(workspace, view),
    )


def shown_alert(workspace: Workspace, row: Recorded) -> AlertRow:
    """An alert as answers show it."""
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
    """Why it can't be sent now."""
    destination: Destination | None = destinations(workspace.home).get(row.to)
    if destination is None:
        return f"The settings name no destination {row.to} any more."
    if destination.command:
        return _COMMAND_FROM_HOST if row.sender == "box" else None
    try:
        address(workspace.home, row.to, destination, os.environ)
    except StateError as error:
        return f"{error.code}: {error.message}"
    return None


def _messages(workspace: Workspace, view: RunView) -> list[AlertMessageRow]:
    """The host's and the client's; what the host gave up appears once, as the client's."""
    messages = workspace.control.alerts.messages(view.run.run_id)
    here = {row.id: _of_client(row) for row in messages}
    on_host = {
        name: _row(name, delivery, "box", view.now)
        for name, delivery in view.record.alerts.deliveries.items()
        if name not in here
    }
    return sorted([*here.values(), *on_host.values()], key=lambda row: row.t)[-_NEWEST_MESSAGES:]


def _of_client(row: MessageRow) -> AlertMessageRow:
    delivery = AlertDelivery(
        row.message, row.to, row.fired_t, row.phase, row.tries, row.due_t, row.reason
    )
    return _row(row.id, delivery, "operator", time.time())


def _row(name: str, delivery: AlertDelivery, sender: Any, now: float) -> AlertMessageRow:
    waits = delivery.due_t is not None and delivery.tries > 0
    return AlertMessageRow(
        id=name,
        alert=delivery.message.alert,
        to=delivery.to,
        sender=sender,
        t=delivery.fired_t,
        phase=delivery.phase,  # type: ignore[arg-type]
        tries=delivery.tries or None,
        reason=delivery.reason,
        next_try_s=max(0.0, round((delivery.due_t or now) - now, 1)) if waits else None,
        text=delivery.message.text,
    )
