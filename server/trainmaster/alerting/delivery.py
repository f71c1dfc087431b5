"""The alerts that a run's box sends, on their way there: with addresses, for its owner's eyes."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from trainer_runtime.core.desired import Desired
from trainmaster.alerting.book import alerts_of, watched
from trainmaster.alerting.destinations import address, destinations
from trainmaster.errors import StateError
from trainmaster.run import Run
from trainmaster.view import load_view
from trainmaster.workspace import Workspace


async def deliver_alerts(workspace: Workspace, run: Run, desired: Desired) -> bool:
    """Let the box have what it sends as of now, where that has changed; True if it was told.

    Settings that can't be read hold up no training: `alerts list` and `doctor` tell of them.

    Raises:
        HostError: the host can't be reached.
    """
    records = workspace.control.alerts
    try:
        given = _given(workspace, run)
    except StateError:
        return False
    delivered = records.delivered(run.run_id)
    if not given["alerts"] and delivered is None:
        return False
    digest = _digest(given, desired.generation)
    if digest == delivered or _has_said_all(workspace, run):
        return False
    given["generation"] = desired.generation
    await workspace.backend(run.host).deliver_alerts(run.run_id, given)
    records.set_delivered(run.run_id, digest)
    return True


def _has_said_all(workspace: Workspace, run: Run) -> bool:
    """An address would stay where no supervisor comes to remove it."""
    view = load_view(workspace, run.run_id)
    return view.record.closed and not view.request_pending


def _given(workspace: Workspace, run: Run) -> dict[str, Any]:
    """Raises:
    StateError: the settings, or the secret of an address that is needed, can't be read.
    """
    rows = [row for row in alerts_of(workspace, run) if row.sender == "box"]
    known = destinations(workspace.home)
    return {
        "host": run.host,
        "placement": run.placement,
        "alerts": [watched(workspace, run, row).to_dict() for row in rows],
        "destinations": {
            name: {
                "kind": known[name].kind,
                "url": address(workspace.home, name, known[name], os.environ),
            }
            for name in sorted({row.to for row in rows})
        },
    }


def _digest(given: dict[str, Any], generation: int) -> str:
    """Of what it says; not of `since_t`, which moves with what is known of the host's clock."""
    alerts = [{**alert, "since_t": None} for alert in given["alerts"]]
    told = json.dumps([generation, {**given, "alerts": alerts}], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()
