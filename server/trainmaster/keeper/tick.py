"""Do what is due for every run and rented instance, once. A timer calls it."""

from __future__ import annotations

import os

from trainmaster.alerts.send import send_due
from trainmaster.keeper.call import parse_every
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.runs.maintain import Round, described, due_runs, maintain
from trainmaster.runs.migrate import stop_old_placements
from trainmaster.runs.secret_delivery import sweep_secrets
from trainmaster.sync.keeper_state import ticking
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.keeper import InstanceTickRow, TickAnswer, TickRow

# A tick sends in its own process: the timer may end its child processes.
_SENDS_S = 20.0
# The bound of one run: longer work (uploads) runs in a separate process.
_RUN_S = 180.0
_ROUND = Round(thorough=True, bound_s=_RUN_S, sends=False)


async def tick(workspace: Workspace, *, every: str | None = None) -> TickAnswer:
    """Advance every run once of which anything may be due, read what its host has to say, and do
    what is due for rented instances.

    A failure stops no other run; two ticks never overlap. `every`: the interval of the timer that
    calls this, so that a missing call can be reported.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    every_s = None if every is None else parse_every(every) * 60.0
    with ticking(workspace.home, every_s) as failed:
        if failed is None:
            return TickAnswer(runs=[], note="Another tick is running; nothing was done.")
        rows = await _tick_runs(workspace, failed)
        instances = await _tick_instances(workspace, failed)
        await send_due(workspace, stays_s=_SENDS_S)
    return TickAnswer(runs=rows, instances=instances or None)


async def _tick_runs(workspace: Workspace, failed: dict[str, str]) -> list[TickRow]:
    sweep_secrets(workspace)
    left = await stop_old_placements(workspace)
    runs = due_runs(workspace)
    found = await maintain(workspace, runs, _ROUND)
    rows = []
    for run in runs:
        done = found[run.run_id]
        did = [*done.did, *([] if done.error is None else [described(done.error)])]
        if done.error is not None and done.tried:
            failed[run.run_id] = described(done.error)
        if did or not run.closed:
            rows.append(_row(workspace, run.run_id, did))
    return [*rows, *(_row(workspace, run_id, did) for run_id, did in left.items())]


def _row(workspace: Workspace, run_id: str, did: list[str]) -> TickRow:
    return TickRow(run_id=run_id, state=load_view(workspace, run_id).state.value, did=did)


async def _tick_instances(workspace: Workspace, failed: dict[str, str]) -> list[InstanceTickRow]:
    if not has_rentals(workspace, os.environ):
        return []
    from trainmaster.machines.renting.maintain import maintain_instances  # heavy, and rarely needed

    report = await maintain_instances(workspace)
    failed |= report.failed
    did = {name: [why] for name, why in report.failed.items()}
    for tag, done in report.did.items():
        did[tag] = [*done, *did.get(tag, ())]
    return [InstanceTickRow(instance=name, did=done) for name, done in did.items()]
