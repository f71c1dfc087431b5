"""The two parts of a tick: rented instances, and runs. Each has a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from trainer_runtime.core.files.durable import lock_within
from trainmaster.answers.keeper import InstanceTickRow, TickAnswer, TickRow
from trainmaster.machines.recover import recover_due
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.runs.resume.old_placements import stop_old_placements
from trainmaster.runs.upkeep.maintain import Round, described, due_runs, maintain
from trainmaster.runs.upkeep.secret_delivery import sweep_secrets
from trainmaster.store.failures import Failures
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

Part = Literal["instances", "runs"]

# The bound of one run: longer work (uploads) runs in a separate process.
_RUN_S = 180.0
_LOCK_S = 0.2
# Of a machine without memory, the kernel ends this part before the other, which ends leases.
_OOM_SCORE = "500"


async def tick_instances(workspace: Workspace) -> TickAnswer:
    """Do what is due for rented instances: nothing where another process does."""
    if not has_rentals(workspace, os.environ):
        return TickAnswer(runs=[])
    with _locked(workspace.home.keeper_part_lock("instances")) as held:
        return await _instances(workspace) if held else TickAnswer(runs=[])


async def tick_runs(workspace: Workspace, *, by_timer: bool = False) -> TickAnswer:
    """Advance every run once of which anything may be due, and read what its host has to say:
    nothing where another process does. A run that fails in any way stops no other. `by_timer`:
    what a place has refused is not repeated before its time."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    with _locked(workspace.home.keeper_part_lock("runs")) as held:
        return await _runs(workspace, by_timer) if held else TickAnswer(runs=[])


async def _instances(workspace: Workspace) -> TickAnswer:
    from trainmaster.machines.renting.maintain_rentals import (
        maintain_instances,  # heavy, and rarely needed
    )

    report = await maintain_instances(workspace)
    did = {name: [why] for name, why in report.failed.items()}
    for tag, done in report.did.items():
        did[tag] = [*done, *did.get(tag, ())]
    rows = [InstanceTickRow(instance=name, did=done) for name, done in did.items()]
    return TickAnswer(runs=[], instances=rows or None, failed=report.failed or None)


async def _runs(workspace: Workspace, by_timer: bool) -> TickAnswer:
    failures = Failures(workspace.home)
    with failures.caught("secrets"):
        sweep_secrets(workspace)
    left = await stop_old_placements(workspace, failures)
    runs = due_runs(workspace)
    how = Round(thorough=True, pauses=by_timer, bound_s=_RUN_S, sends=False)
    maintained = await maintain(workspace, runs, how)
    if workspace.home.awaited_rehearsal("any").parent.is_dir():
        from trainmaster.runs.launch.after_rehearsal import continue_where_due

        await continue_where_due(workspace, failures)
    left |= await recover_due(workspace, failures)  # started, if it has to be, by the next tick
    rows = []
    for run in runs:
        done = maintained[run.run_id]
        did = [*done.did, *([] if done.error is None else [described(done.error)])]
        if done.error is not None and done.tried:
            failures.add(run.run_id, done.error)
        if did or not run.closed:
            with failures.caught(run.run_id):
                rows.append(_row(workspace, run.run_id, did))
    for run_id, did in left.items():
        with failures.caught(run_id):
            rows.append(_row(workspace, run_id, did))
    return TickAnswer(runs=rows, failed=failures.texts or None)


def _row(workspace: Workspace, run_id: str, did: list[str]) -> TickRow:
    return TickRow(run_id=run_id, state=load_view(workspace, run_id).state.value, did=did)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether the lock is this process's inside."""
    lock = lock_within(path, _LOCK_S)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)
