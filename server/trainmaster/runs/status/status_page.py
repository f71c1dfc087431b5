"""A run's status page, from the record: the same as the host's `training_status.md`."""

from typing import ClassVar

from trainer_runtime.core.status.status_page import render_status
from trainmaster.answers.base import WholeAnswer
from trainmaster.answers.fitting import Cap
from trainmaster.errors.advice import for_face
from trainmaster.sync.reckoning import requested_t
from trainmaster.sync.refresh import refresh
from trainmaster.sync.workspace import Workspace


class PageAnswer(WholeAnswer):
    """`page`: Markdown. Evidence in it is text of the log, which anybody may have written."""

    documents: ClassVar[frozenset[str]] = frozenset({"page"})
    cap = Cap(128_000)

    run_id: str
    page: str


async def get_page(workspace: Workspace, run: str) -> PageAnswer:
    """The status page of a run, also when its host is gone.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    view = await refresh(workspace, run)
    page = render_status(
        view.record,
        view.attempts,
        view.index,
        view.run.config,
        view.now,
        for_face,
        since_t=requested_t(view),
    )
    return PageAnswer(run_id=view.run.run_id, page=page)
