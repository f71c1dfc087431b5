"""The read path: a run's view after one bounded read of its host.

New bytes are copied into the mirror and folded into the database. Nothing changes on a host,
nothing is started, sent or delivered: `advance` does what is due for a run, and only acting calls
use it.
"""

from __future__ import annotations

from trainmaster.sync.job_ends import awaits_ends, learn_ends
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# The longest that an answer waits for a host that may be unreachable.
READ_WITHIN_S = 10.0


async def refresh(workspace: Workspace, run: str, within_s: float = READ_WITHIN_S) -> RunView:
    """The run of this id or name, as current as `within_s` allows; an unreachable host shows in
    the view, not as an error.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    run_record = workspace.control.run(run)
    if not run_record.closed:
        from trainmaster.sync.follow import catch_up  # an ended run needs nothing of what follows

        await catch_up(workspace, run_record.host, within_s)
    elif awaits_ends(workspace, run_record):
        await learn_ends(workspace, [run_record], within_s)
    return load_view(workspace, run_record.run_id)
