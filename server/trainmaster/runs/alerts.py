"""Adds, removes and tests alerts."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from trainer_runtime.core.alerts.condition import MetricCondition
from trainer_runtime.core.alerts.message import trial_message
from trainer_runtime.core.protocol.command import command
from trainmaster.alerts.destinations import destinations, known_destination
from trainmaster.alerts.rules import add_row, checked_condition, record_defaults
from trainmaster.alerts.send import try_once
from trainmaster.answers.alerts import AlertAddedAnswer, AlertRemovedAnswer, AlertTestAnswer
from trainmaster.errors.errors import StateError
from trainmaster.metrics.sources import EXPECTED
from trainmaster.runs.lists.list_alerts import shown_alert
from trainmaster.runs.upkeep.maintain import Round, maintain
from trainmaster.store.control.alerts import EVERY_RUN
from trainmaster.store.control.alerts import AlertRow as Recorded
from trainmaster.store.run import Run
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.workspace import Workspace

_DELIVER_S = 20.0


async def add_alert(
    workspace: Workspace,
    *,
    when: str,
    to: str | None = None,
    name: str | None = None,
    severity: str = "warning",
    run: str | None = None,
) -> AlertAddedAnswer:
    """Add an alert: a destination of the settings is notified when a condition is met, by one run
    or by any.

    Events from now on count. `to` may be left out where there is one destination.

    Raises:
        UsageError: `CONDITION_INVALID`, `DESTINATION_UNKNOWN`, `BAD_ARGUMENT`.
        StateError: `RUN_NOT_FOUND`, `RUN_ENDED`, `ALERT_EXISTS`, `SETTINGS_NOT_READABLE`.
    """
    run_record = chosen_run(workspace, run) if run else None
    row = add_row(workspace, when=when, to=to, name=name, severity=severity, run=run_record)
    reached = await _deliver(workspace, row, run_record)
    return AlertAddedAnswer(
        alert=shown_alert(workspace, row),
        pending=None if reached else True,
        note=await unknown_metric_note(workspace, when, run_record),
        next_step=command("alerts test", row.to),
    )


async def remove_alert(
    workspace: Workspace, name: str, run: str | None = None
) -> AlertRemovedAnswer:
    """Remove an alert of one run, or one of every run. An alert of a spec stays removed until the
    spec changes it.

    Raises:
        StateError: `RUN_NOT_FOUND`, `ALERT_NOT_FOUND`, `SETTINGS_NOT_READABLE`.
    """
    run_record = chosen_run(workspace, run) if run else None
    record_defaults(workspace)
    run_id = run_record.run_id if run_record else EVERY_RUN
    rows = [row for row in workspace.control.alerts.of(run_id) if row.run_id == run_id]
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        whose = f"run {run_id}" if run_id else "every run"
        shown = f"{command('alerts list', run_id)}" if run_id else f"{command('alerts list')}"
        raise StateError(
            "ALERT_NOT_FOUND",
            f"No alert of {whose} is called {name!r}.",
            f"{shown} shows them; one of a single run is removed with the run's name behind it.",
            field="name",
        )
    workspace.control.alerts.remove(row.id, time.time())
    reached = await _deliver(workspace, row, run_record)
    return AlertRemovedAnswer(name=name, run_id=run_id or None, pending=None if reached else True)


async def test_destination(workspace: Workspace, name: str) -> AlertTestAnswer:
    """Send a test message to a destination, or to that of an alert of this name, from here.

    Raises:
        StateError: `ALERT_NOT_FOUND`, `SECRET_MISSING`, `SECRET_INVALID`, `SETTINGS_NOT_READABLE`.
        UsageError: `DESTINATION_UNKNOWN`.
    """
    to = _destination_of(workspace, name)
    destination = known_destination(workspace.home, to, "name")
    message = trial_message(to, time.time(), secrets.token_hex(8))
    answer = await try_once(workspace, to, destination, message)
    from_host = destination.kind != "command" and (destination.sender or "box") == "box"
    return AlertTestAnswer(
        destination=to,
        kind=destination.kind,
        id=message.id,
        sent=answer.sent,
        status=answer.status,
        reason=None if answer.sent else answer.reason,
        untrusted_said=answer.said or None,
        note="Sent from this machine; hosts send the alerts of their runs themselves."
        if from_host
        else None,
    )


async def _deliver(workspace: Workspace, row: Recorded, run: Run | None) -> bool:
    """Deliver the change to the hosts that it concerns; False where one was not reached."""
    if row.sender != "box":
        return True
    runs: Sequence[Run] = [run] if run else workspace.control.runs(only_open=True)
    try:
        async with asyncio.timeout(_DELIVER_S):
            opened = [open_run for open_run in runs if not open_run.closed]
            done = await maintain(workspace, opened, Round(reads=False))
            return all(open_run.error is None for open_run in done.values())
    except TimeoutError:
        return False


def _destination_of(workspace: Workspace, name: str) -> str:
    if name in destinations(workspace.home):
        return name
    row = next((row for row in workspace.control.alerts.all() if row.name == name), None)
    if row is None:
        names = ", ".join(destinations(workspace.home)) or "none yet"
        raise StateError(
            "ALERT_NOT_FOUND",
            f"Neither a destination nor an alert is called {name!r}.",
            f"Destinations of {workspace.home.settings}: {names}.",
            field="name",
        )
    return row.to


async def unknown_metric_note(workspace: Workspace, when: str, run: Run | None) -> str | None:
    """A note where a condition names a metric that its run lacks and no training is
    known to report. It may still come: the caller decides.

    Without a run, the metrics of all open runs count.
    """
    condition = checked_condition(when)
    if not isinstance(condition, MetricCondition) or condition.key.partition("/")[0] in EXPECTED:
        return None
    if run is not None and not run.closed:
        await catch_up(workspace, run.host)
    runs = [run] if run else workspace.control.runs(only_open=True)
    there = {key for known_run in runs for key in workspace.metrics.keys(known_run.run_id)}
    if condition.key in there:
        return None
    whose = f"The run has no metric `{condition.key}`" if run else f"No run has `{condition.key}`"
    return f"{whose} so far{_meant(condition.key, there | EXPECTED)}."


def _meant(key: str, there: Collection[str]) -> str:
    alike = get_close_matches(key, sorted(there), n=1, cutoff=0.6)
    return f"; did you mean `{alike[0]}`? It is watched for all the same" if alike else ""
