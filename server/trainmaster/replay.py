"""Making the derived database again from the mirror."""

from __future__ import annotations

import time

from trainmaster.answers import ReplayAnswer
from trainmaster.follow import follower_lock
from trainmaster.ingest import take_in
from trainmaster.workspace import Workspace


async def replay(workspace: Workspace) -> ReplayAnswer:
    """Throw the derived database's contents away, and make them again from the mirror.

    Raises:
        StorageError: `HOME_BUSY` while another process follows a host.
    """
    started = time.monotonic()
    placements = list(workspace.mirror.placements())
    hosts = {run.host for run in workspace.control.runs()}
    async with follower_lock(workspace.home, sorted(hosts)):
        with workspace.metrics.writing():  # all of it, or the old contents stay
            workspace.metrics.clear()
            for run_id, placement in placements:
                mirror = workspace.mirror.of(run_id, placement)
                take_in(workspace.metrics, mirror, run_id, placement)
    return ReplayAnswer(
        runs=len({run_id for run_id, _ in placements}),
        points=workspace.metrics.count_points(),
        seconds=round(time.monotonic() - started, 3),
    )
