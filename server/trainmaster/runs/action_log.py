"""`trainmaster log`: the newest calls that acted in this home."""

from __future__ import annotations

from trainmaster.answers.actions import ActionLogAnswer, ActionRow
from trainmaster.calls.work_thread import in_thread
from trainmaster.store.action_log import read_actions
from trainmaster.sync.workspace import Workspace


async def list_actions(
    workspace: Workspace, *, run: str | None = None, limit: int = 50
) -> ActionLogAnswer:
    """The newest `limit` calls that acted, oldest first; with `run`, those on that run.

    Raises:
        UsageError: `RUN_NOT_FOUND`, `RUN_NAME_AMBIGUOUS`.
    """
    run_id = None if run is None else workspace.control.run(run).run_id
    actions = await in_thread(read_actions, workspace.home, limit, run_id)
    rows = [
        ActionRow(
            time=action.time,
            face=action.face,
            client=action.client,
            action=action.action,
            target=dict(action.target),
            outcome=action.outcome,
            duration_s=action.duration_s,
            user=action.user or None,
        )
        for action in actions
    ]
    return ActionLogAnswer(actions=rows, path=str(workspace.home.action_log))
