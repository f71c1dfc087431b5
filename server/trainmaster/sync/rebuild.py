"""Rebuilds the derived database from the mirror."""

from __future__ import annotations

import math
import time

from trainmaster.sync.follow import follower_lock
from trainmaster.sync.ingest import ingest_placement, take_in
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.runs import ReplayAnswer


def replay_if_new(workspace: Workspace, within_s: float = math.inf) -> None:
    """Ingest the mirrors where the database was lost, or a newer version has replaced it.

    Other processes may ingest the same, each byte once. After a kill, or after `within_s`, the
    next call continues.
    """
    if not workspace.metrics.replay_due:
        return
    deadline = time.monotonic() + within_s
    for run_id, placement in list(workspace.mirror.placements()):
        if time.monotonic() > deadline:
            return
        mirror = workspace.mirror.of(run_id, placement)
        ingest_placement(workspace.metrics, mirror, run_id, placement)
    with workspace.metrics.writing():
        workspace.metrics.replayed()


async def replay(workspace: Workspace) -> ReplayAnswer:
    """Clear the derived database, and rebuild it from the mirror.

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
            workspace.metrics.replayed()
    return ReplayAnswer(
        runs=len({run_id for run_id, _ in placements}),
        points=workspace.metrics.count_points(),
        seconds=round(time.monotonic() - started, 3),
    )
