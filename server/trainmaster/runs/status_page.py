"""A run's status page, from the record: what its box writes as `training_status.md`."""

from __future__ import annotations

from trainer_runtime.core.status.status_page import render_status
from trainmaster.sync.refresh import refresh
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.base import Answer


class PageAnswer(Answer):
    """`page`: Markdown. Evidence in it is text of the log, which anybody may have written."""

    run_id: str
    page: str


async def get_page(workspace: Workspace, run: str) -> PageAnswer:
    """The page of a run as it stands, also when its box is gone.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    view = await refresh(workspace, run)
    page = render_status(view.record, view.attempts, view.index, view.run.config, view.now)
    return PageAnswer(run_id=view.run.run_id, page=page)
