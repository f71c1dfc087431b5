"""What is due for every run and box, once: what a timer calls while nobody looks."""

from __future__ import annotations

import asyncio
import os

from trainmaster.alerts.send import send_due
from trainmaster.keeper.call import parse_every
from trainmaster.machines.renting.has_rentals import is_renting
from trainmaster.runs.advance import advance, fire_alerts, next_session
from trainmaster.runs.migrate import stop_left_behind
from trainmaster.runs.secret_delivery import sweep_secrets
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.keeper_state import ticking
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import is_mirrored_here
from trainmaster.words.answers.keeper import BoxTickRow, TickAnswer, TickRow
from trainmaster.words.errors import HostError, TrainmasterError

# A tick sends by itself: a timer that called it may end whatever it leaves behind.
_SENDS_S = 20.0
_OUT_OF_REACH = frozenset({"HOST_UNREACHABLE", "LINK_LOST", "KAGGLE_UNREACHABLE", "TOOK_TOO_LONG"})
# Of one run: what takes longer goes by itself (uploads), or hangs.
_RUN_S = 180.0


async def tick(workspace: Workspace, *, every: str | None = None) -> TickAnswer:
    """Advance every run once of which anything may be due, read what its host has to say, and do
    what is due for rented boxes.

    One that fails stops no other; two ticks never overlap. `every`: how often a timer calls this,
    so that it can be told when it doesn't.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    every_s = None if every is None else parse_every(every) * 60.0
    with ticking(workspace.home, every_s) as failed:
        if failed is None:
            return TickAnswer(runs=[], note="Another tick is at work; nothing was done.")
        rows = await _tick_runs(workspace, failed)
        boxes = await _tick_boxes(workspace, failed)
        await send_due(workspace, stays_s=_SENDS_S)
    return TickAnswer(runs=rows, boxes=boxes or None)


async def _tick_runs(workspace: Workspace, failed: dict[str, str]) -> list[TickRow]:
    away: dict[str, str] = {}
    rows = []
    sweep_secrets(workspace)
    left = await stop_left_behind(workspace)
    watched = workspace.control.alerts.watched_to_end()
    for run in workspace.control.runs():
        newest = workspace.control.desired(run.run_id)[0].generation
        if run.closed and watched.get(run.run_id, 0) < newest:
            fire_alerts(workspace, run.run_id)
        if run.closed and not is_mirrored_here(run):
            continue
        row = await _tick_run(workspace, run, away, failed)
        if row is not None:
            rows.append(row)
    for run_id, did in left.items():
        rows.append(TickRow(run_id=run_id, state=load_view(workspace, run_id).state.value, did=did))
    return rows


async def _tick_boxes(workspace: Workspace, failed: dict[str, str]) -> list[BoxTickRow]:
    if not is_renting(workspace, os.environ):
        return []
    from trainmaster.machines.renting.maintain import look_after_boxes  # heavy, and rarely needed

    looked = await look_after_boxes(workspace)
    failed |= looked.failed
    did = {name: [why] for name, why in looked.failed.items()}
    for tag, done in looked.did.items():
        did[tag] = [*done, *did.get(tag, ())]
    return [BoxTickRow(box=name, did=done) for name, done in did.items()]


async def _tick_run(
    workspace: Workspace, run: Run, away: dict[str, str], failed: dict[str, str]
) -> TickRow | None:
    try:
        did = [away[run.host]] if run.host in away else await _advance(workspace, run)
    except TrainmasterError as error:
        did = [f"{error.code}: {error.message}"]
        failed[run.run_id] = did[0]
        if error.code in _OUT_OF_REACH:
            away[run.host] = did[0]
    if run.closed and not did:
        return None
    if run.host not in away:
        await catch_up(workspace, run.host)
        did += await next_session(workspace, run)
    fire_alerts(workspace, run.run_id)
    return TickRow(run_id=run.run_id, state=load_view(workspace, run.run_id).state.value, did=did)


async def _advance(workspace: Workspace, run: Run) -> list[str]:
    try:
        async with asyncio.timeout(_RUN_S):
            return await advance(workspace, run.run_id)
    except TimeoutError:
        told = f"{run.host} gave no answer within {_RUN_S:.0f} s."
        fix = "Look at the link, or at the host."
        raise HostError("TOOK_TOO_LONG", told, fix, retryable=True) from None
