"""Clears the derived database, or what it has of a run, and rebuilds it from the mirror."""

from __future__ import annotations

import time

from trainmaster.answers.runs import ReplayAnswer
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.follow import follower_lock
from trainmaster.sync.rebuild import rebuild_again
from trainmaster.sync.workspace import Workspace


async def replay(workspace: Workspace, run: str | None = None) -> ReplayAnswer:
    """Clear the derived database, and rebuild it from the mirror; with `run`, of that run alone.

    A run that was quarantined is read again: it is quarantined once more where nothing changed.
    After a kill the next call of any kind continues.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        StorageError: `HOME_BUSY` while another process follows a host.
    """
    started = time.monotonic()
    run_id = None if run is None else chosen_run(workspace, run).run_id
    hosts = {entry.host for entry in workspace.control.runs() if run_id in (None, entry.run_id)}
    placements = [entry for entry in workspace.mirror.placements() if run_id in (None, entry[0])]
    metrics = workspace.metrics
    async with follower_lock(workspace.home, sorted(hosts)):
        workspace.control.list.forget_ends(run_id)
        rebuild_again(workspace, run_id)
    return ReplayAnswer(
        runs=len({name for name, _ in placements}),
        points=metrics.count_points(run_id),
        seconds=round(time.monotonic() - started, 3),
        quarantined=sorted({name for name, _ in metrics.refusals.quarantined() & set(placements)})
        or None,
    )
