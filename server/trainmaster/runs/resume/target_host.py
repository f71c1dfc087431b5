"""The host of a resume: the run's own, or another one that it migrates to."""

from __future__ import annotations

import time

from trainer_runtime.core.protocol.states import RunState
from trainmaster.errors.errors import StateError
from trainmaster.runs.attach import refuse_attached
from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.planning.plan_run import refuse_where_lease_is_over
from trainmaster.runs.planning.spec_policy import Beyond
from trainmaster.runs.resume.migrate import migrate
from trainmaster.runs.resume.remaining_hosts import refuse_unless_remaining
from trainmaster.runs.resume.request import ResumeRequest
from trainmaster.runs.resume.resume_policy import allow_resume
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, load_view, refuse_unless_ended
from trainmaster.sync.workspace import Workspace

# A stop that is under way is waited for, within what a call may last.
_STOPS_WITHIN_S = 25.0


async def on_target_host(
    workspace: Workspace, run: str, request: ResumeRequest
) -> tuple[RunView, Beyond]:
    """The run, on the host where it is to resume, and what its caller was allowed. A stop that is
    under way is awaited.

    Raises:
        TrainmasterError: it can't resume there, or not yet.
    """
    view = await refresh(workspace, run)
    refuse_attached(view.run, "resumed")
    if view.state is RunState.STOPPING and not (view.sessions and view.sessions.files_travel):
        await wait_for_event(workspace, run, until=("end",), timeout_s=_STOPS_WITHIN_S)
        view = load_view(workspace, run)
    target = request.host or view.run.host
    refuse_where_lease_is_over(workspace, target, time.time())
    _refuse_cleaned(view)
    if target == view.run.host:
        if not view.record.awaits_choice(view.now):
            refuse_unless_ended(view)
        return view, await allow_resume(workspace, view, target, request)
    refuse_unless_remaining(view.run, target)
    allowed = await allow_resume(workspace, view, target, request)
    await migrate(workspace, view, target, request)
    return load_view(workspace, run), allowed


def _refuse_cleaned(view: RunView) -> None:
    if view.run.cleaned:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} was cleaned: its files are gone from {view.run.host}.",
            "Launch it again.",
        )
