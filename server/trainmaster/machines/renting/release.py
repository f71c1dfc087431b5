"""Giving a box back: agreed to, what it holds brought here, ended, and gone from the list."""

from __future__ import annotations

import json
import time

from trainmaster.machines.renting.drain import Losses, losses_of, runs_of
from trainmaster.machines.renting.factory import Opener, opener
from trainmaster.machines.renting.instance_answers import released
from trainmaster.machines.renting.instances import begin_tending, until
from trainmaster.machines.renting.reconcile import release_stray
from trainmaster.runs.cost import spent_usd
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.follow import catch_up
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ReleaseAnswer
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import CloudError, StateError

WAIT_S = 30.0


async def release(
    workspace: Workspace,
    box: str,
    *,
    confirm: Confirm,
    force: bool = False,
    wait_s: float = WAIT_S,
    opened: Opener | None = None,
) -> ReleaseAnswer:
    """Give back a box (its host's name, or its tag, also of one that no record knows). May be
    repeated: what was begun goes on, and nobody is asked again.

    Without `force`, open runs and what can't be brought here keep it.

    Raises:
        StateError: `RUN_IS_RUNNING`, `NOT_MIRRORED`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
        CloudError: `BOX_UNKNOWN`; `BOX_STILL_THERE`, it was asked to end, and goes on with that;
            whatever the provider says.
    """
    found = workspace.control.boxes.box(box)
    if found is None:
        return await release_stray(workspace, box, confirm, wait_s, opener(workspace, opened))
    if not found.open:
        return released(found)
    if not _is_leaving(found) or (force and _may_be_kept(found)):
        await _agree(workspace, found, confirm, force)
    found = await until(workspace, found.tag, _is_leaving, wait_s)
    refused = found.body.get("release_refused")
    if found.state is RentState.READY and refused and not found.body.get("release"):
        raise StateError(refused["code"], refused["message"], refused["fix"], refused["retryable"])
    if found.state is RentState.RELEASING:
        raise _still_there(found)
    return released(found)


def request_release(
    workspace: Workspace, box: RentedBox, *, why: str, force: bool, agreed_by: str | None = None
) -> None:
    """Put on record that a box is to be given back, and have that begun; `why` becomes its reason.

    With `force` its runs are stopped, and what can't be brought here is given up.
    """
    state = None if box.state is RentState.READY else RentState.RELEASING
    asked = {"t": time.time(), "force": force, "why": why, "agreed_by": agreed_by}
    body = {"release": asked, "release_refused": None}
    workspace.control.boxes.change(box.tag, state, body=body)
    begin_tending(workspace, box.tag)


async def _agree(workspace: Workspace, box: RentedBox, confirm: Confirm, force: bool) -> None:
    if box.state is RentState.READY and any(not run.closed for run in runs_of(workspace, box)):
        await catch_up(workspace, box.host)
    losses = losses_of(workspace, box)
    if losses.open_runs and not force:
        raise StateError(
            "RUN_IS_RUNNING",
            f"{box.host} has open runs: {', '.join(losses.open_runs)}.",
            f"Stop them (`trainmaster stop {losses.open_runs[0]}`) and wait for their end, or pass "
            "--force: then they are stopped first.",
        )
    lost = [losses.open_runs, sorted(losses.not_here)] if force else []
    asked = json.dumps([box.tag, force, *lost])  # agreed to is what was told would be lost
    agreed_by = await confirm(Quote("release", asked, _text(box, losses, force)))
    request_release(workspace, box, why="released", force=force, agreed_by=agreed_by)


def _text(box: RentedBox, losses: Losses, force: bool) -> str:
    spent = spent_usd(box, time.time())
    told = [
        f"Give back {box.host} ({box.provider}): it has cost {spent:.2f} $, of at most "
        f"{box.budget_usd:.2f} $.",
        "The machine and its disk are gone for good.",
    ]
    if losses.open_runs:
        told.append(f"Stopped first: {', '.join(losses.open_runs)}.")
    if losses.not_here:
        listed = "; ".join(f"{run}: {what}" for run, what in losses.not_here.items())
        given_up = " What can't be brought is lost." if force else ""
        told.append(f"Brought here first: {listed}.{given_up}")
    return " ".join(told)


def _is_leaving(box: RentedBox) -> bool:
    if box.state is RentState.READY:
        return box.body.get("release") is not None
    return box.state is RentState.RELEASING


def _may_be_kept(box: RentedBox) -> bool:
    """Whether it is on its way without `force`."""
    return box.state is RentState.READY and not (box.body.get("release") or {}).get("force")


def _still_there(box: RentedBox) -> CloudError:
    trouble = box.body.get("trouble")
    why = f" ({trouble['code']}: {trouble['message']})" if trouble else ""
    return CloudError(
        "BOX_STILL_THERE",
        f"{box.provider} still lists {box.host}, which was asked to end{why}.",
        f"It is asked again and again; look again in a minute: `trainmaster release {box.host}`. "
        "Where it stays, end it at the provider's own page.",
        retryable=True,
    )
