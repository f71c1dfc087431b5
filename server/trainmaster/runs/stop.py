"""Stops runs: a request that outlives its caller."""

from __future__ import annotations

import time

from trainer_runtime.core.diagnosis.stacks import verdict
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import DEFAULT_GRACE_S, Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.runs import StopAnswer
from trainmaster.runs.attach import refuse_attached
from trainmaster.runs.diagnosis.diagnose_run import open_findings
from trainmaster.runs.status.next_step import next_step
from trainmaster.runs.upkeep.maintain import deliver
from trainmaster.store.reserve import give_up_reserve
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# A stop is recorded soon, however long its host takes to answer.
_READ_WITHIN_S = 5.0
_GRACE_OF_HUNG_S = 10.0
_SAVES = 3
_HANGS = frozenset({verdict.STALL, verdict.HANG_COLLECTIVE, verdict.HANG_DATA})


async def stop(
    workspace: Workspace, run: str, *, grace_s: float | None = None, after_session: bool = False
) -> StopAnswer:
    """Ask a run to save and end; the request stands until it is delivered. May be repeated.

    `after_session`: for a run at Kaggle, let the current session finish, and start no other.

    Raises:
        StateError: `RUN_NOT_FOUND`; `UNSUPPORTED` where a session at Kaggle would have to be ended.
    """
    give_up_reserve(workspace.home)
    chosen = chosen_run(workspace, run)
    view = await refresh(workspace, chosen.run_id, _READ_WITHIN_S)
    refuse_attached(view.run, "stopped")
    run_id = view.run.run_id
    if view.sessions is not None and not view.ended and not after_session:
        view.sessions.refuse_stop(run_id)
    while not view.ended and view.desired.state is not DesiredState.STOPPED:
        desired = Desired(
            DesiredState.STOPPED,
            view.desired.generation + 1,
            why="stop",
            grace_s=_grace_s(view) if grace_s is None else grace_s,
        )
        workspace.control.request(run_id, desired, time.time())
        view = load_view(workspace, run_id)
    await deliver(workspace, run_id)
    view = load_view(workspace, run_id)
    wait = command("wait", run_id, "--until", "end", "--timeout", "600")
    # A wait alone does not deliver the request.
    is_delivered = view.ended or view.sessions is not None or not view.delivered
    return StopAnswer(
        run_id=run_id,
        state=view.state.value,
        pending=None if view.delivered else True,
        incomplete=view.incomplete,
        next_step=next_step(view, open_findings(view)) if is_delivered else wait,
    )


def _grace_s(view: RunView) -> float:
    """How long the trainer may take to save: one that hangs neither hears it nor has a new step.

    By its longest save so far: one may be on its way, and another one follows.
    """
    if any(one.code in _HANGS for one in open_findings(view)):
        return _GRACE_OF_HUNG_S
    longest_s = max((progress.longest_save_s for progress in view.attempts), default=0.0)
    return max(DEFAULT_GRACE_S, _SAVES * longest_s)
