"""Do what is due for every run and rented instance, once. A timer calls it.

Rented instances come first, and each part is a process of its own: a run whose data makes its
process hang, crash or run out of memory does not keep a lease from its end.
"""

from __future__ import annotations

import asyncio
import os
import time

from trainmaster.alerts.send import send_due
from trainmaster.alerts.tick_failures import fire_tick_failures
from trainmaster.answers.keeper import InstanceTickRow, TickAnswer
from trainmaster.errors.error_codes import CODES, Reach
from trainmaster.keeper.call import parse_every
from trainmaster.keeper.part_process import run_part
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.store.failures import Failures
from trainmaster.store.reserve import give_up_reserve, keep_reserve
from trainmaster.sync.keeper_state import record_failed, ticking
from trainmaster.sync.workspace import Workspace

# A tick sends in its own process: the timer may end its child processes.
_SENDS_S = 20.0
# A cluster's controller may be silent while its login node, the host, answers.
_UNANSWERED = {name for name, code in CODES.items() if code.reach is Reach.NO_ANSWER}
_PASSING = _UNANSWERED - {"TIMEOUT"} | {"SLURM_UNREACHABLE"}
# The bounds of the parts, together below systemd's for the whole (`systemd.LONGEST_S`).
_INSTANCES_S = 400.0
_RUNS_S = 1000.0
# Instances are maintained again while the runs' part takes long.
_INSTANCES_EVERY_S = 240.0


async def tick(workspace: Workspace, *, every: str | None = None) -> TickAnswer:
    """Do what is due for rented instances, then advance every run once of which anything may be
    due, and read what its host has to say.

    A failure stops nothing else; it is on record for `keeper status` and `doctor`, and destinations
    of alerts are notified of a part that failed. Where another tick is running, only instances are
    maintained. `every`: the interval of the timer that calls this, so that a missing call can be
    reported.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    give_up_reserve(workspace.home)
    every_s = None if every is None else parse_every(every) * 60.0
    with ticking(workspace.home, every_s) as failed:
        instances = await _instances(workspace)
        if failed is None:
            record_failed(workspace.home, instances.failed or {})
            note = "Another tick is running; nothing was done for runs."
            return instances.model_copy(update={"note": note})
        answer = await _runs(workspace, instances, by_timer=every is not None)
        failures = Failures(workspace.home)
        with failures.caught("alerts"):
            fire_tick_failures(workspace, answer.failed or {}, time.time())
            await send_due(workspace, stays_s=_SENDS_S)
        failed |= {**(answer.failed or {}), **failures.texts}
        keep_reserve(workspace.home)
    return answer.model_copy(update={"failed": failed or None})


def has_failed(answer: TickAnswer) -> bool:
    """Whether a tick left undone what it could have done: not where a host or provider gave no
    answer, which the next tick asks again."""
    codes = {text.partition(":")[0] for text in (answer.failed or {}).values()}
    return any(code not in _PASSING for code in codes)


async def _instances(workspace: Workspace) -> TickAnswer:
    if not has_rentals(workspace, os.environ):
        return TickAnswer(runs=[])
    return await run_part(workspace.home, "instances", _INSTANCES_S)


async def _runs(workspace: Workspace, instances: TickAnswer, *, by_timer: bool) -> TickAnswer:
    """The part of the runs, joined with what was done for instances before and meanwhile."""
    runs = asyncio.create_task(run_part(workspace.home, "runs", _RUNS_S, by_timer=by_timer))
    try:
        while not (await asyncio.wait({runs}, timeout=_INSTANCES_EVERY_S))[0]:
            instances = _joined(instances, await _instances(workspace))
        return _joined(instances, runs.result())
    finally:
        runs.cancel()


def _joined(first: TickAnswer, second: TickAnswer) -> TickAnswer:
    """Both answers in one; of an instance, what was done both times."""
    did: dict[str, list[str]] = {}
    for row in (*(first.instances or ()), *(second.instances or ())):
        did.setdefault(row.instance, []).extend(row.did)
    rows = [InstanceTickRow(instance=name, did=list(dict.fromkeys(did[name]))) for name in did]
    return TickAnswer(
        runs=[*first.runs, *second.runs],
        instances=rows or None,
        failed={**(first.failed or {}), **(second.failed or {})} or None,
    )
