"""Everything that is due for rented boxes, once: for ticks, and for a server that starts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

from trainmaster.machines.renting.factory import Opener
from trainmaster.machines.renting.has_rentals import is_renting
from trainmaster.machines.renting.idle import release_due
from trainmaster.machines.renting.instances import advance_box, begin_tending
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ReconcileAnswer
from trainmaster.words.errors import TrainmasterError

# Of one box, and of all providers' lists; what takes longer is due the next time too.
_BOX_S = 60.0
_LISTS_S = 90.0


@dataclass(frozen=True, slots=True)
class LookedAfter:
    """By box what was done, and by box or provider what could not be."""

    did: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def look_after_boxes(
    workspace: Workspace, *, opened: Opener | None = None, now: float | None = None
) -> LookedAfter:
    """Give back what is idle or whose lease ends, do what is due for each open box, and hold the
    providers' lists against the records. One that fails stops no other; bounded in time.

    Does nothing where no box is open and no provider has a key.
    """
    looked = LookedAfter()
    if not is_renting(workspace, os.environ):
        return looked
    try:
        due = release_due(workspace, time.time() if now is None else now)
    except TrainmasterError as error:  # settings that can't be read: leases end all the same
        due, looked.failed["settings"] = {}, _told(error)
    for tag, why in due.items():
        looked.did[tag] = [f"is given back: {why}"]
    for box in workspace.control.boxes.boxes(only_open=True):
        begin_tending(workspace, box.tag)
        await _try(looked, box.tag, _step(workspace, box.tag, looked, opened), _BOX_S)
    await _try(looked, "lists", _reconcile(workspace, looked, opened), _LISTS_S)
    return looked


async def _step(workspace: Workspace, tag: str, looked: LookedAfter, opened: Opener | None) -> None:
    did = await advance_box(workspace, tag, opened=opened)
    if did:
        looked.did.setdefault(tag, []).extend(did)


async def _reconcile(workspace: Workspace, looked: LookedAfter, opened: Opener | None) -> None:
    found: ReconcileAnswer = await reconcile(workspace, opened=opened)
    for tag, did in (found.did or {}).items():
        looked.did.setdefault(tag, []).extend(did)
    for stray in found.strays or ():
        told = f"is on no record here, and costs: `trainmaster release {stray.box}`"
        looked.did.setdefault(stray.box, []).append(told)
    looked.failed.update(found.not_asked or {})


async def _try(looked: LookedAfter, what: str, work: Awaitable[None], within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await work
    except TrainmasterError as error:
        looked.failed[what] = _told(error)
    except TimeoutError:
        looked.failed[what] = f"TIMEOUT: more than {within_s:.0f} s"
    except Exception as error:  # a defect of ours: the other boxes' leases end all the same
        looked.failed[what] = f"INTERNAL: {type(error).__name__}"


def _told(error: TrainmasterError) -> str:
    return f"{error.code}: {error.message}"
