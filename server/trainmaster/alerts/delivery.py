"""The alerts that a run's box sends, on their way there: with addresses, for its owner's eyes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from trainer_runtime.core.protocol.desired import DETACH, Desired
from trainmaster.alerts.destinations import address, destinations
from trainmaster.alerts.rules import alerts_of, watched
from trainmaster.backends import AlertSender
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import StateError


async def deliver_alerts(workspace: Workspace, run: Run, desired: Desired) -> bool:
    """Let the box have what it sends as of now, where that has changed; True if it was told.

    Settings that can't be read hold up no training: `alerts list` and `doctor` tell of them.

    Raises:
        HostError: the host can't be reached.
    """
    records = workspace.control.alerts
    before = records.delivered(run.run_id)
    try:
        given = _given(workspace, run, _addresses_there(before, desired.generation))
    except StateError:
        return False
    if not given["alerts"] and before is None:
        return False
    delivered = _noted(given, desired.generation)
    if delivered == before or _has_said_all(workspace, run):
        return False
    given["generation"] = desired.generation
    if desired.why == DETACH:
        given["last_tries_s"] = 0.0
    await AlertSender.of(workspace.backend(run.host)).deliver_alerts(run.run_id, given)
    records.set_delivered(run.run_id, delivered)
    return True


async def take_over_alerts(workspace: Workspace, run: Run) -> None:
    """Have the box of a run that is to be removed leave to this side what it could not send yet.

    Raises:
        HostError: the host can't be reached.
    """
    if run.closed or workspace.control.alerts.delivered(run.run_id) is None:
        return
    try:
        given = _given(workspace, run, ())
    except StateError:
        return
    given |= {"generation": workspace.control.desired(run.run_id)[0].generation}
    given |= {"last_tries_s": 0.0}
    await AlertSender.of(workspace.backend(run.host)).deliver_alerts(run.run_id, given)


def _has_said_all(workspace: Workspace, run: Run) -> bool:
    """An address would stay where no supervisor comes to remove it."""
    view = load_view(workspace, run.run_id)
    return view.record.closed and not view.request_pending


def _given(workspace: Workspace, run: Run, there: Collection[str]) -> dict[str, Any]:
    """What the box is to have; `there`: the destinations whose addresses it has already.

    Raises:
        StateError: the settings can't be read, or the secret of an address that is there already:
            the box would lose it.
    """
    rows = [row for row in alerts_of(workspace, run) if row.sender == "box"]
    known = destinations(workspace.home)
    addresses: dict[str, dict[str, str]] = {}
    for name in sorted({row.to for row in rows if known[row.to].kind != "command"}):
        try:
            url = address(workspace.home, name, known[name], os.environ)
        except StateError:
            if name in there:
                raise
            continue  # the others are told all the same; it follows once its secret is here
        addresses[name] = {"kind": known[name].kind, "url": url}
    return {
        "host": run.host,
        "placement": run.placement,
        "alerts": [watched(workspace, run, row).to_dict() for row in rows],
        "destinations": addresses,
    }


def _noted(given: Mapping[str, Any], generation: int) -> str:
    """A digest of what is given, for which request, and the destinations that have an address.

    Not of `since_t`, which moves with what is known of the host's clock.
    """
    alerts = [{**alert, "since_t": None} for alert in given["alerts"]]
    told = json.dumps([generation, {**given, "alerts": alerts}], sort_keys=True)
    digest = hashlib.sha256(told.encode()).hexdigest()
    return " ".join([digest, str(generation), *given["destinations"]])


def _addresses_there(noted: str | None, generation: int) -> list[str]:
    """The destinations whose addresses the box has; it removes them once a request is answered."""
    words = (noted or "").split()
    return words[2:] if words[1:2] == [str(generation)] else []
