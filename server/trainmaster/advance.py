"""One idempotent step of whatever is due for a run. Launch, wait, server and `tick` all call it."""

from __future__ import annotations

import asyncio
import json
import os
import time

from trainer_runtime.core.durable import try_lock
from trainmaster.alerting.delivery import deliver_alerts
from trainmaster.alerting.looking import look
from trainmaster.alerting.sending import begin_sending, send_due
from trainmaster.answers import TickAnswer, TickRow
from trainmaster.checkpoint_mirror import is_mirrored_here
from trainmaster.errors import HostError
from trainmaster.follow import catch_up, last_pass, note_away
from trainmaster.run import Run
from trainmaster.secret_delivery import deliver_secrets, sweep_secrets
from trainmaster.transfer import begin_transfers
from trainmaster.view import HEARTBEAT_S, load_view
from trainmaster.workspace import Workspace

# What keeps a host from being reached at all.
_AWAY = frozenset({"HOST_UNREACHABLE", "LINK_LOST", "AUTH_FAILED", "HOST_KEY_CHANGED"})
# So long an answer waits for a host that may be away.
LOOK_S = 10.0
# A tick sends by itself: a timer that called it may end whatever it leaves behind.
_SENDS_S = 20.0


async def advance(workspace: Workspace, run_id: str, *, thorough: bool = True) -> list[str]:
    """Do what is due for a run; what was done, in words, empty where nothing was.

    `thorough` asks the host whether a supervisor lives; otherwise its heartbeat is trusted.

    Raises:
        HostError: the host refuses or can't be reached; what was not done is still due.
    """
    lock = try_lock(workspace.home.advance_lock(run_id))
    if lock is None:
        return []  # another process is at it
    try:
        run = workspace.control.run(run_id)
        try:
            return await _advance(workspace, run, thorough)
        except HostError as error:
            if error.code in _AWAY:
                note_away(workspace, run.host, error)
            raise
    finally:
        os.close(lock)


def look_for_alerts(workspace: Workspace, run_id: str) -> None:
    """Fire what is due for a run after news of it came in, and have it sent, detached."""
    _look(workspace, run_id)
    begin_sending(workspace)


async def look_in(workspace: Workspace, run_id: str, bound_s: float = LOOK_S) -> None:
    """One bounded look at a run before an answer: do what is due, read what its host has to say,
    and only then see whom that concerns."""
    host, began = workspace.control.run(run_id).host, time.time()
    reached = await look_after(workspace, run_id, bound_s)
    if reached or last_pass(workspace.home, host).t < began:
        await catch_up(workspace, host, bound_s)
    look_for_alerts(workspace, run_id)


async def look_after(workspace: Workspace, run_id: str, bound_s: float = LOOK_S) -> bool:
    """`advance` before an answer, within a bound; False where it could not be done.

    A host that refuses or is away shows in the answer, not as an error.
    """
    try:
        async with asyncio.timeout(bound_s):
            await advance(workspace, run_id, thorough=False)
    except HostError:
        return False
    except TimeoutError:
        host = workspace.control.run(run_id).host
        message = f"{host} gave no answer within {bound_s:.0f} s."
        late = HostError("TOOK_TOO_LONG", message, "Look at the link.", retryable=True)
        note_away(workspace, host, late)
        return False
    finally:
        begin_sending(workspace)
    return True


async def tick(workspace: Workspace) -> TickAnswer:
    """Advance every run once of which anything may be due, and read what its host has to say."""
    rows: list[TickRow] = []
    away: dict[str, str] = {}
    sweep_secrets(workspace)
    watched = workspace.control.alerts.watched_to_end()
    for run in workspace.control.runs():
        newest = workspace.control.desired(run.run_id)[0].generation
        if run.closed and watched.get(run.run_id, 0) < newest:
            _look(workspace, run.run_id)
        if run.closed and not is_mirrored_here(run):
            continue
        try:
            did = [away[run.host]] if run.host in away else await advance(workspace, run.run_id)
        except HostError as error:
            did = [f"{error.code}: {error.message}"]
            if error.code in ("HOST_UNREACHABLE", "LINK_LOST"):
                away[run.host] = did[0]
        if run.closed and not did:
            continue
        if run.host not in away:
            await catch_up(workspace, run.host)
        _look(workspace, run.run_id)
        rows.append(
            TickRow(run_id=run.run_id, state=load_view(workspace, run.run_id).state.value, did=did)
        )
    await send_due(workspace, stays_s=_SENDS_S)
    return TickAnswer(runs=rows)


async def _advance(workspace: Workspace, run: Run, thorough: bool) -> list[str]:
    control, backend = workspace.control, workspace.backend(run.host)
    if run.cleaned:
        return []
    if run.closed:
        return ["started a transfer"] if begin_transfers(workspace, run) else []
    did: list[str] = []
    desired, delivered = control.desired(run.run_id)
    if not control.is_placed(run):
        from trainmaster.recorded_bundle import bundle_of  # once in a run's life, and heavy

        bundle = bundle_of(run)
        files = {**bundle.files, "desired.json": json.dumps(desired.to_dict()).encode()}
        await backend.place(run.run_id, files, bundle.executable)
        control.set_placed(run, time.time())
        did.append("placed")
    if not delivered:
        await deliver_secrets(workspace, run, desired)
        await deliver_alerts(workspace, run, desired)
        await backend.request(run.run_id, desired)
        control.set_delivered(run.run_id, desired.generation, time.time())
        did.append(f"requested {desired.state.value}")
    elif await deliver_alerts(workspace, run, desired):
        did.append("delivered alerts")
    quiet = not did and not thorough and not _silent(workspace, run)
    if not quiet and not _is_over(workspace, run) and await backend.start(run.run_id):
        did.append("started the supervisor")
    if begin_transfers(workspace, run):
        did.append("started a transfer")
    return did


def _look(workspace: Workspace, run_id: str) -> None:
    lock = try_lock(workspace.home.advance_lock(run_id))
    if lock is not None:
        try:
            look(workspace, run_id)
        finally:
            os.close(lock)


def _silent(workspace: Workspace, run: Run) -> bool:
    view = load_view(workspace, run.run_id)
    heard = view.record.heartbeat_t
    return heard is None or view.now - heard > 1.5 * HEARTBEAT_S


def _is_over(workspace: Workspace, run: Run) -> bool:
    view = load_view(workspace, run.run_id)
    return view.record.closed and not view.request_pending
