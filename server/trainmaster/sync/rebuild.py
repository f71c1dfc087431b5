"""Rebuilds the derived database from the mirror."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from trainmaster.store.database import is_of_the_database
from trainmaster.sync.follow import follower_lock
from trainmaster.sync.ingest import Ingest, MirrorGrowth, ingest_placement, take_in
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


async def replay(workspace: Workspace, run: str | None = None) -> ReplayAnswer:
    """Clear the derived database, and rebuild it from the mirror; with `run`, of that run alone.

    A run that was quarantined is read again: it is quarantined once more where nothing changed.

    Raises:
        StateError: `RUN_NOT_FOUND`.
        StorageError: `HOME_BUSY` while another process follows a host.
    """
    started = time.monotonic()
    run_id = None if run is None else workspace.control.run(run).run_id
    hosts = {one.host for one in workspace.control.runs() if run_id in (None, one.run_id)}
    placements = [one for one in workspace.mirror.placements() if run_id in (None, one[0])]
    async with follower_lock(workspace.home, sorted(hosts)):
        workspace.control.list.forget_ends(run_id)
        _ingest_again(workspace, run_id, placements)
    refusals = workspace.metrics.refusals
    return ReplayAnswer(
        runs=len({name for name, _ in placements}),
        points=workspace.metrics.count_points(run_id),
        seconds=round(time.monotonic() - started, 3),
        quarantined=sorted({name for name, _ in refusals.quarantined() & set(placements)}) or None,
    )


def _ingest_again(
    workspace: Workspace, run_id: str | None, placements: Sequence[tuple[str, int]]
) -> None:
    """All of it, or the old contents stay; one by one where a run's files can't be folded."""
    metrics, mirror = workspace.metrics, workspace.mirror
    try:
        with metrics.writing():
            metrics.clear(run_id)
            for placement in placements:
                take_in(metrics, mirror.of(*placement), *placement)
            if run_id is None:
                metrics.replayed()
        return
    except Exception as error:
        if is_of_the_database(error):
            raise
    with metrics.writing():
        metrics.clear(run_id)
    grown = [MirrorGrowth(*placement, mirror.of(*placement), None) for placement in placements]
    Ingest(metrics).take_in(grown)
    if run_id is None:
        with metrics.writing():
            metrics.replayed()
