"""One idempotent step of whatever is due for a run. Launch, wait, server and `tick` all call it."""

from __future__ import annotations

import asyncio
import json
import os
import time

from trainer_runtime.core.files.durable import try_lock
from trainmaster.alerts.delivery import deliver_alerts
from trainmaster.alerts.evaluate import look
from trainmaster.alerts.send import begin_sending
from trainmaster.runs.secret_delivery import deliver_secrets
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up, last_pass, note_away
from trainmaster.sync.run_view import HEARTBEAT_S, ended_instance, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.transfer import begin_transfers
from trainmaster.words.errors import HostError

# What keeps a host from being reached at all.
_AWAY = frozenset(
    {
        *("HOST_UNREACHABLE", "LINK_LOST", "AUTH_FAILED", "HOST_KEY_CHANGED"),
        *("KAGGLE_UNREACHABLE", "KAGGLE_KEY_MISSING", "KAGGLE_KEY_REFUSED"),
    }
)
# So long an answer waits for a host that may be away.
LOOK_S = 10.0


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
    fire_alerts(workspace, run_id)
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
        late = HostError("TIMEOUT", message, "Look at the link.", retryable=True)
        note_away(workspace, host, late)
        return False
    finally:
        begin_sending(workspace)
    return True


def fire_alerts(workspace: Workspace, run_id: str) -> None:
    """Fire what is due for a run, where nobody else is at it; sends nothing."""
    lock = try_lock(workspace.home.advance_lock(run_id))
    if lock is not None:
        try:
            look(workspace, run_id)
        finally:
            os.close(lock)


async def deliver(workspace: Workspace, run_id: str) -> bool:
    """Have the host told of the newest request; False where that has to wait, within bounds."""
    await look_in(workspace, run_id)
    return workspace.control.desired(run_id)[1]


async def _advance(workspace: Workspace, run: Run, thorough: bool) -> list[str]:
    if run.cleaned or ended_instance(workspace, run.host) is not None:
        return []  # nothing is due where nothing is
    control, backend = workspace.control, workspace.backend(run.host)
    if run.closed:
        return ["started a transfer"] if begin_transfers(workspace, run) else []
    did: list[str] = []
    desired, delivered = control.desired(run.run_id)
    if not control.is_placed(run):
        from trainmaster.runs.rerender import bundle_of  # once in a run's life, and heavy

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


async def next_session(workspace: Workspace, run: Run) -> list[str]:
    """What is due for a run whose session was found to be over just now."""
    kernel = load_view(workspace, run.run_id).kernel
    if kernel is None or kernel.alive:
        return []
    try:
        return await advance(workspace, run.run_id)
    except HostError as error:
        return [f"{error.code}: {error.message}"]


def _silent(workspace: Workspace, run: Run) -> bool:
    view = load_view(workspace, run.run_id)
    if view.kernel is not None:
        return not view.kernel.runs
    heard = view.record.heartbeat_t
    return heard is None or view.now - heard > 1.5 * HEARTBEAT_S


def _is_over(workspace: Workspace, run: Run) -> bool:
    view = load_view(workspace, run.run_id)
    return view.record.closed and not view.request_pending
