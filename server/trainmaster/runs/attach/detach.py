"""Refuses changes to attached trainings, and detaches from them."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import DETACH, Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import StateError
from trainmaster.runs.upkeep.maintain import until_closed
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace


def refuse_attached(run: Run, done: str) -> None:
    """Raises:
    StateError: `ATTACHED_READ_ONLY` for an attached run; `done`: the refused action.
    """
    if not run.is_attached:
        return
    raise StateError(
        "ATTACHED_READ_ONLY",
        f"Run {run.run_id} is attached, and only watched: it can't be {done}.",
        f"Its owner can, on {run.host}. {command('clean', run.run_id)} ends the watching and "
        "leaves the training alone.",
    )


async def detach(workspace: Workspace, view: RunView) -> RunView:
    """Stop watching a training, which continues; the run's view after that.

    Raises:
        HostError: the host can't be reached; the request is delivered once it can be.
    """
    run_id = view.run.run_id
    while view.desired.state is not DesiredState.STOPPED:
        desired = Desired(
            DesiredState.STOPPED, view.desired.generation + 1, why=DETACH, grace_s=0.0
        )
        workspace.control.request(run_id, desired, time.time())
        view = load_view(workspace, run_id)
    await until_closed(workspace, run_id)
    return load_view(workspace, run_id)
