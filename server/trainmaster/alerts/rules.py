"""The alert rules of a run: those of its spec, those added by hand, and the defaults."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

from trainer_runtime.core.alerts.alert import Alert, alert_id
from trainer_runtime.core.alerts.codes import unknown_code
from trainer_runtime.core.alerts.condition import (
    LONGEST,
    Condition,
    ConditionError,
    parse_condition,
)
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.finding import SEVERITIES, Severity
from trainmaster.alerts.destinations import (
    destinations,
    how_to_name_one,
    known_destination,
    sender_of,
)
from trainmaster.backends import KAGGLE
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import Destination
from trainmaster.store.control.alerts import EVERY_RUN, AlertRow
from trainmaster.store.run import Run
from trainmaster.sync.last_pass import last_pass
from trainmaster.sync.workspace import Workspace

# The alerts of every destination for every run, unless it says `defaults: false`.
DEFAULTS: tuple[tuple[str, Severity, str], ...] = (
    ("failed", "critical", "state failed"),
    ("lost", "critical", "state lost"),
    ("nan-loss", "critical", "finding nan_loss"),
    ("nan-grad", "critical", "finding nan_grad"),
    ("spike", "warning", "finding loss_spike"),
    ("divergence", "critical", "finding divergence"),
    ("stall", "critical", "finding stall"),
)
_LONGEST_NAME = 63
# Clocks that agree within this are one clock.
_SAME_CLOCK_S = 2.0


def add_row(
    workspace: Workspace,
    *,
    when: str,
    to: str | None,
    name: str | None,
    severity: str,
    run: Run | None,
) -> AlertRow:
    """Put an alert on record: of one run, or of every run. A default alert that sends the same to
    the same destination is returned instead: each event is one message.

    Raises:
        UsageError: `CONDITION_INVALID`, `DESTINATION_UNKNOWN`, `BAD_ARGUMENT`.
        StateError: `ALERT_EXISTS`, `RUN_ENDED`, `SETTINGS_NOT_READABLE`.
    """
    condition = checked_condition(when)
    if severity not in SEVERITIES:
        raise _bad_argument("severity", severity, f"Use one of {', '.join(SEVERITIES)}.")
    to = to or _only_destination(workspace.home)
    destination = known_destination(workspace.home, to, "to")
    if name is None:
        name = _default_name(when)
        rows = listed_alerts(workspace, run)
        default = next((row for row in rows if _is_default(row, when, to)), None)
        if default is not None:
            record_defaults(workspace)
            return default
        if any(row.name == name and row.to != to for row in rows):
            name = f"{name[: _LONGEST_NAME - len(to) - 1]}-{to}"
    _refuse_unusable_name(name)
    if run is not None and run.cleaned:
        raise StateError("RUN_ENDED", f"Run {run.run_id} was cleaned.", "Nothing can happen to it.")
    now = time.time()
    run_id = run.run_id if run else EVERY_RUN
    row = AlertRow(
        id=alert_id(run_id, name, when, severity, to, now),
        run_id=run_id,
        name=name,
        severity=severity,
        when=when,
        to=to,
        sender=sender_of(destination, condition),
        origin="added",
        created_t=now,
    )
    if not workspace.control.alerts.add(row):
        raise StateError(
            "ALERT_EXISTS",
            f"An alert is called {name!r} already.",
            "Give it another name, or remove that one first: "
            f"{command('alerts remove', name, *filter(None, [run_id]))}.",
            field="name",
        )
    return row


def _refuse_unusable_name(name: str) -> None:
    from trainmaster.plan.fields.annotations import (  # heavy, and rarely needed
        NAME_ACCEPTED,
        NAME_PATTERN,
    )

    if not NAME_PATTERN.fullmatch(name) or ".." in name:
        raise _bad_argument("name", name, f"Use {NAME_ACCEPTED}.")


def _is_default(row: AlertRow, when: str, to: str) -> bool:
    return (row.origin, row.when, row.to) == ("default", when, to)


def checked_condition(when: str) -> Condition:
    """The parsed condition.

    Raises:
        UsageError: `CONDITION_INVALID`.
    """
    try:
        condition = parse_condition(when)
    except ConditionError as error:
        message = f"{when[:LONGEST]!r} is not a valid condition. {error.message}"
        raise UsageError("CONDITION_INVALID", message, error.fix, field="when") from None
    unknown = unknown_code(condition)
    if unknown is not None:
        fix = (
            f"There are {', '.join(unknown[1])}." if unknown[1] else "docs/diagnosis.md lists them."
        )
        message = f"No finding has the code {unknown[0]!r}."
        raise UsageError("CONDITION_INVALID", message, fix, field="when")
    return condition


def alerts_of(workspace: Workspace, run: Run) -> list[AlertRow]:
    """Every alert of a run that can be sent now; records those of its spec and the defaults.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`.
    """
    by_name = destinations(workspace.home)
    if by_name:
        _record_defaults(workspace, by_name)
    _record_spec(workspace, run, by_name)
    rows = [row for row in workspace.control.alerts.of(run.run_id) if row.to in by_name]
    if run.host == KAGGLE or _is_agents(workspace, run.host):  # neither is given an address
        return [replace(row, sender="operator") for row in rows]
    return rows


def _is_agents(workspace: Workspace, host: str) -> bool:
    """Whether an agent added the host: a person has not agreed to a secret there."""
    record = workspace.control.host(host)
    return record is not None and record.by_agent


def record_defaults(workspace: Workspace) -> None:
    """Raises:
    StateError: `SETTINGS_NOT_READABLE`.
    """
    _record_defaults(workspace, destinations(workspace.home))


def watched(workspace: Workspace, run: Run, row: AlertRow) -> Alert:
    """The alert of one run, with the time from which it counts, by the clock of its host."""
    since_t = 0.0
    if row.created_t > run.created_t:
        skew_s = last_pass(workspace.home, run.host).skew_s
        since_t = row.created_t + (skew_s if abs(skew_s) > _SAME_CLOCK_S else 0.0)
    return Alert(row.id, row.name, row.severity, row.when, row.to, since_t)


def listed_alerts(workspace: Workspace, run: Run | None) -> list[AlertRow]:
    """Every alert, or those of one run, as the next acting call will record them; records
    nothing.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`.
    """
    records, by_name = workspace.control.alerts, destinations(workspace.home)
    run_id = EVERY_RUN if run is None else run.run_id
    rows = records.all() if run is None else records.of(run_id)
    wanted, gone = _default_rows(by_name), set[str]()
    if run is not None:
        of_spec = {
            row.id: row for row in _spec_rows(run, run.document.get("alerts") or [], by_name)
        }
        wanted += of_spec.values()
        gone = {row.id for row in rows if row.origin == "spec" and row.id not in of_spec}
    rows = [row for row in rows if row.id not in gone]
    ever, taken = records.ever(run_id), {(row.run_id, row.name) for row in rows}
    rows += [row for row in wanted if row.id not in ever and (row.run_id, row.name) not in taken]
    return sorted(rows, key=lambda row: (row.run_id, row.created_t, row.name))


def _record_defaults(workspace: Workspace, by_name: dict[str, Destination]) -> None:
    records = workspace.control.alerts
    there = records.defaults()
    for row in _default_rows(by_name):
        if row.id not in there:
            records.add(row)


def _default_rows(by_name: dict[str, Destination]) -> list[AlertRow]:
    return [
        AlertRow(
            id=alert_id("default", to, when),
            run_id=EVERY_RUN,
            name=f"{to}-{name}",
            severity=severity,
            when=when,
            to=to,
            sender=sender_of(destination, parse_condition(when)),
            origin="default",
            created_t=time.time(),
        )
        for to, destination in by_name.items()
        for name, severity, when in (DEFAULTS if destination.defaults else ())
    ]


def _record_spec(workspace: Workspace, run: Run, by_name: dict[str, Destination]) -> None:
    """Record the alerts that the spec has now; remove those of an earlier spec.

    One that the user has removed is not added again. One whose destination is missing, or that the
    spec has dropped, is forgotten: should either come back, so does the alert.
    """
    records = workspace.control.alerts
    wanted = {row.id: row for row in _spec_rows(run, run.document.get("alerts") or [], by_name)}
    there = {row.id for row in records.of(run.run_id) if row.origin == "spec"}
    if set(wanted) == there:
        return
    is_new = workspace.control.desired(run.run_id)[0].generation == 1
    for name in there - set(wanted):
        records.forget(name)
    for name, row in wanted.items():
        if name not in there:
            records.add(row if is_new else replace(row, created_t=time.time()))


def _spec_rows(
    run: Run, spec_alerts: list[dict[str, Any]], by_name: dict[str, Destination]
) -> list[AlertRow]:
    return [
        AlertRow(
            id=alert_id(run.run_id, item["name"], item["when"], item["severity"], item["to"]),
            run_id=run.run_id,
            name=item["name"],
            severity=item["severity"],
            when=item["when"],
            to=item["to"],
            sender=sender_of(by_name[item["to"]], parse_condition(item["when"])),
            origin="spec",
            created_t=run.created_t,
        )
        for item in spec_alerts
        if item["to"] in by_name
    ]


def _only_destination(home: Home) -> str:
    by_name = list(destinations(home))
    if len(by_name) != 1:
        named = (
            f"; there are {', '.join(by_name)}" if by_name else f", and {home.settings} names none"
        )
        raise UsageError(
            "DESTINATION_UNKNOWN",
            f"No destination is given{named}.",
            f"Name one: {option('--to', by_name[0])}." if by_name else how_to_name_one(home),
            field="to",
        )
    return by_name[0]


def _default_name(when: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", when).strip("-_")[:_LONGEST_NAME] or "alert"


def _bad_argument(field: str, value: str, fix: str) -> UsageError:
    return UsageError(
        "BAD_ARGUMENT", f"{value!r} is not a valid {field} of an alert.", fix, field=field
    )
