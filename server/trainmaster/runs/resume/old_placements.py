"""Stops what runs left behind on hosts that they were moved away from."""

from __future__ import annotations

import asyncio

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.backends import NAMES
from trainmaster.errors.errors import HostError
from trainmaster.store.failures import Failures
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

_REACHED_WITHIN_S = 20.0


async def stop_old_placements(workspace: Workspace, failures: Failures) -> dict[str, list[str]]:
    """Stop abandoned placements on hosts that were unreachable then, where they are reachable now;
    by run, the actions. Their later output stays on those hosts. One that fails stops no other."""
    did: dict[str, list[str]] = {}
    for run_id, host in workspace.control.left_behind():
        with failures.caught(run_id):
            view = load_view(workspace, run_id)
            if view.run.host == host:
                continue
            if host in NAMES or workspace.control.host(host) is not None:
                try:
                    await stop_placement(workspace, view, host)
                except (HostError, TimeoutError):
                    continue  # unreachable still
                did.setdefault(run_id, []).append(f"stopped what was left of it on {host}")
            workspace.control.forget_left_behind(run_id, host)
    return did


async def stop_placement(workspace: Workspace, view: RunView, host: str) -> None:
    """Have a host stop what it still has of a run.

    Raises:
        HostError, TimeoutError: it can't be reached.
    """
    backend = workspace.backend(host)
    stopped = Desired(DesiredState.STOPPED, view.desired.generation + 1, why="placed_elsewhere")
    async with asyncio.timeout(_REACHED_WITHIN_S):
        await backend.request(view.run.run_id, stopped)
        await backend.start(view.run.run_id)  # only a live supervisor reads the request
