"""The read path: a run as it stands, after one bounded read of what its host has to say.

What is new is followed into the mirror and folded into the database. Nothing changes on a host,
nothing is started, sent or delivered: what is due for a run is done by `advance`, which only what
acts calls.
"""

from __future__ import annotations

from trainmaster.sync.follow import catch_up
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

# So long an answer waits for a host that may be away.
READ_WITHIN_S = 10.0


async def refresh(workspace: Workspace, run: str, within_s: float = READ_WITHIN_S) -> RunView:
    """The run of this id or name, as current as `within_s` allows; a host that is away shows in
    the view, not as an error.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    found = workspace.control.run(run)
    if not found.closed:
        await catch_up(workspace, found.host, within_s)
    return load_view(workspace, found.run_id)
