"""What a server that may act does beside its calls: maintenance, as long as it lives.

So what is due for runs is done though no call acts and no keeper is installed: requests that wait
for their host, supervisors that died, uploads, copies of checkpoints, Kaggle's next session,
alerts. A server that is read-only has none of this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from trainmaster.errors.errors import TrainmasterError

if TYPE_CHECKING:
    from trainmaster.machines.renting.maintain_rentals import MaintenanceReport
    from trainmaster.store.run import Run
    from trainmaster.sync.workspace import Workspace

# Most servers are asked something as soon as they live: that comes first.
_FIRST_AFTER_S = 2.0
_EVERY_S = 15.0
# Of closed runs little is left to do, and hosts that are away stay away for a while.
_EVERYTHING_EVERY_S = 300.0
_AWAY_FOR_S = 30.0
_LOG = logging.getLogger(__name__)


class Background:
    """One task, that no call waits for; what goes wrong in it stands in the server's log."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, workspace: Workspace) -> None:
        """Begin, in the loop that runs."""
        self._task = asyncio.get_running_loop().create_task(_maintain(workspace))

    async def end(self) -> None:
        """Cancel what is not done: the next process that acts does it. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def _maintain(workspace: Workspace) -> None:
    await _maintain_boxes(workspace)
    await asyncio.sleep(_FIRST_AFTER_S)
    await asyncio.to_thread(_import_maintain)
    rounds = _Rounds(workspace)
    try:
        while True:
            await rounds.make_one()
            await asyncio.sleep(_EVERY_S)
    finally:
        rounds.end()


async def _maintain_boxes(workspace: Workspace) -> None:
    """Once: leases end by themselves, and the keeper continues."""
    import sqlite3

    from trainmaster.machines.renting.has_rentals import has_rentals

    try:
        if not has_rentals(workspace, os.environ):
            return
        maintain_instances = await asyncio.to_thread(_import_maintain_instances)
        maintained = await maintain_instances(workspace)
    except (TrainmasterError, sqlite3.Error, OSError) as error:
        _LOG.warning("Rented instances could not be maintained: %s", type(error).__name__)
        return
    for name, why in maintained.failed.items():
        _LOG.warning("Rented instances, %s: %s", name, why)


def _import_maintain() -> None:
    """In a thread: it is heavy."""
    from trainmaster.runs.upkeep import maintain  # noqa: F401


def _import_maintain_instances() -> Callable[[Workspace], Awaitable[MaintenanceReport]]:
    from trainmaster.machines.renting.maintain_rentals import maintain_instances

    return maintain_instances


class _Rounds:
    """Small rounds over open runs, and now and then one over all for which something is left."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._everything_due_s = 0.0
        self._opened: set[str] = set()
        self._lock: int | None = None

    async def make_one(self) -> None:
        """Make one round, unless another server of the home makes them."""
        from trainer_runtime.core.files.durable import try_lock

        try:
            if self._lock is None:
                self._lock = try_lock(self._workspace.home.maintenance_lock)
            if self._lock is not None:
                await self._make_one()
        except Exception as error:  # a defect, or a database in need: the next round tries again
            _LOG.warning("Runs could not be maintained: %s", type(error).__name__)

    def end(self) -> None:
        """Leave the rounds to another server."""
        if self._lock is not None:
            os.close(self._lock)

    async def _make_one(self) -> None:
        from trainmaster.runs.upkeep.maintain import maintain

        if self._workspace.metrics.replay_due:
            from trainmaster.sync.rebuild import rebuild_behind

            rebuild_behind(self._workspace)
            return  # what is due is known once the records are complete
        runs = [run for run in self._due_runs() if not self._is_away(run)]
        self._opened = {run.run_id for run in runs if not run.closed}
        await maintain(self._workspace, runs)
        if self._workspace.home.awaited_rehearsal("any").parent.is_dir():
            from trainmaster.runs.launch.after_rehearsal import continue_where_due

            await continue_where_due(self._workspace)

    def _due_runs(self) -> list[Run]:
        from trainmaster.runs.upkeep.maintain import due_runs

        if time.monotonic() >= self._everything_due_s:
            self._everything_due_s = time.monotonic() + _EVERYTHING_EVERY_S
            return due_runs(self._workspace)
        control = self._workspace.control
        due = control.due_runs()
        return [
            control.run(run_id) for run_id, closed in due if not closed or run_id in self._opened
        ]

    def _is_away(self, run: Run) -> bool:
        from trainmaster.sync.last_pass import last_pass

        last = last_pass(self._workspace.home, run.host)
        return last.error is not None and time.time() - last.t < _AWAY_FOR_S
