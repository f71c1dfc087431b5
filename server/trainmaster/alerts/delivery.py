"""Delivers to a run's host the alerts that it sends, with their addresses, in a private file."""

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
from trainmaster.errors.errors import StateError
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace


async def deliver_alerts(workspace: Workspace, run: Run, desired: Desired) -> bool:
    """Deliver the host's alerts if they have changed; True if anything was delivered.

    Settings that can't be read delay no training: `alerts list` and `doctor` report them.

    Raises:
        HostError: the host can't be reached.
    """
    records = workspace.control.alerts
    before = records.delivered(run.run_id)
    try:
        document = _given(workspace, run, _addresses_there(before, desired.generation))
    except StateError:
        return False
    if not document["alerts"] and before is None:
        return False
    delivered = _noted(document, desired.generation)
    if delivered == before or _has_said_all(workspace, run):
        return False
    document["generation"] = desired.generation
    if desired.why == DETACH:
        document["last_tries_s"] = 0.0
    await AlertSender.of(workspace.backend(run.host)).deliver_alerts(run.run_id, document)
    records.set_delivered(run.run_id, delivered)
    return True


async def take_over_alerts(workspace: Workspace, run: Run) -> None:
    """Have the host of a run that is to be removed hand its unsent messages to the client.

    Raises:
        HostError: the host can't be reached.
    """
    if run.closed or workspace.control.alerts.delivered(run.run_id) is None:
        return
    try:
        document = _given(workspace, run, ())
    except StateError:
        return
    document |= {"generation": workspace.control.desired(run.run_id)[0].generation}
    document |= {"last_tries_s": 0.0}
    await AlertSender.of(workspace.backend(run.host)).deliver_alerts(run.run_id, document)


def _has_said_all(workspace: Workspace, run: Run) -> bool:
    """Whether the run has ended: no supervisor would come to remove an address again."""
    view = load_view(workspace, run.run_id)
    return view.record.closed and not view.request_pending


def _given(workspace: Workspace, run: Run, there: Collection[str]) -> dict[str, Any]:
    """The file for the host; `there`: the destinations whose addresses it already has.

    Raises:
        StateError: the settings can't be read, or the secret of an address that is there already:
            the host would lose it.
    """
    rows = [row for row in alerts_of(workspace, run) if row.sender == "box"]
    by_name = destinations(workspace.home)
    addresses: dict[str, dict[str, str]] = {}
    for name in sorted({row.to for row in rows if not by_name[row.to].command}):
        try:
            url = address(workspace.home, name, by_name[name], os.environ)
        except StateError:
            if name in there:
                raise
            continue  # the others are delivered; this one follows once its secret is here
        addresses[name] = {"kind": by_name[name].kind, "url": url}
    return {
        "host": run.host,
        "placement": run.placement,
        "alerts": [watched(workspace, run, row).to_dict() for row in rows],
        "destinations": addresses,
    }


def _noted(document: Mapping[str, Any], generation: int) -> str:
    """The digest of what is delivered, its request, and the destinations that have an address.

    Not of `since_t`, which moves with what is known of the host's clock.
    """
    alerts = [{**alert, "since_t": None} for alert in document["alerts"]]
    content = json.dumps([generation, {**document, "alerts": alerts}], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return " ".join([digest, str(generation), *document["destinations"]])


def _addresses_there(noted: str | None, generation: int) -> list[str]:
    """The destinations whose addresses the host has; it removes them with the next request."""
    words = (noted or "").split()
    return words[2:] if words[1:2] == [str(generation)] else []
