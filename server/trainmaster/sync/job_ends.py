"""How the last jobs of ended runs have ended, which their cluster often says only later.

An open run's follower asks beside its files; an ended run has none, so that it is asked for here: a
few times, each after a longer pause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from trainmaster.backends import SLURM, EndFinder
from trainmaster.errors.errors import HostError
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

if TYPE_CHECKING:
    from trainmaster.store.control.slurm import Questions

_ANSWERS_WITHIN_S = 8.0


def awaits_ends(workspace: Workspace, run: Run) -> bool:
    """Whether a closed run's jobs are worth further questions."""
    if not _has_jobs(workspace, run):
        return False
    from trainmaster.backends.slurm.chain import is_end_awaited  # most runs have no jobs

    slurm = workspace.control.slurm
    return is_end_awaited(slurm.jobs(run.run_id), slurm.questions(run.run_id))


async def learn_ends(workspace: Workspace, runs: Sequence[Run], within_s: float) -> None:
    """Ask the cluster of these runs, which are one host's, for those that are closed and due;
    bounded, and never an error of the host."""
    due = _due(workspace, [run for run in runs if run.closed and _has_jobs(workspace, run)])
    if not due:
        return
    workspace.control.slurm.put_questions(due)
    with suppress(HostError, TimeoutError):
        finder = EndFinder.of(workspace.backend(runs[0].host))
        async with asyncio.timeout(min(within_s, _ANSWERS_WITHIN_S)):
            await finder.learn_ends(list(due))


def _due(workspace: Workspace, runs: Sequence[Run]) -> dict[str, Questions]:
    """Of these runs, which have jobs, the questions that are due."""
    if not runs:
        return {}
    from trainmaster.backends.slurm.chain import is_end_due  # most runs have no jobs
    from trainmaster.store.control.slurm import Questions

    now, slurm, due = time.time(), workspace.control.slurm, {}
    for run in runs:
        before = slurm.questions(run.run_id)
        if is_end_due(slurm.jobs(run.run_id), before, now):
            due[run.run_id] = Questions(1 if before is None else before.count + 1, now)
    return due


def _has_jobs(workspace: Workspace, run: Run) -> bool:
    host = None if run.cleaned else workspace.control.host(run.host)
    return host is not None and host.launcher == SLURM
