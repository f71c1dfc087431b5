"""Delivers secrets to hosts, and removes them from the home once no run needs them."""

from __future__ import annotations

import time
from contextlib import suppress

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState, RunState
from trainmaster.errors.errors import StateError
from trainmaster.runs.upkeep.further_hosts import deliver_secrets_to_members
from trainmaster.store import secret_values
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# A launch writes the values before it puts the run on record: only older ones are leftovers.
_LEFT_OVER_AFTER_S = 3600.0


async def deliver_secrets(workspace: Workspace, run: Run, desired: Desired) -> None:
    """Deliver the run's secrets to its host before a request to run.

    Raises:
        HostError: `SECRET_MISSING`; or the host can't be reached.
    """
    names = run.config.secrets
    if desired.state is DesiredState.RUNNING and names:
        values = secret_values.kept(workspace.home, run.run_id, names)
        backend = workspace.backend(run.host)
        await backend.deliver_secrets(run.run_id, desired.generation, values)
        await deliver_secrets_to_members(workspace, run, desired.generation, values)


def forget_secrets(workspace: Workspace, view: RunView) -> bool:
    """Remove the values of a run that is cleaned, or completed and read to its end; True if any
    were here.

    A resume reads them again. Of a run that stopped or failed they are kept until then.
    """
    is_over = view.run.closed and view.state is RunState.COMPLETED
    if not (view.run.cleaned or is_over):
        return False
    return secret_values.forget(workspace.home, view.run.run_id)


def sweep_secrets(workspace: Workspace) -> None:
    """Remove secrets that no recorded run needs any more."""
    folder = workspace.home.secrets("any").parent
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            forget_secrets(workspace, load_view(workspace, path.stem))
        except StateError:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _LEFT_OVER_AFTER_S:
                    path.unlink()
