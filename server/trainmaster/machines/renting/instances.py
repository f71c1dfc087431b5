"""One idempotent step of whatever is due for a rented box, and the process that takes one by one.

A box is on record before its provider is asked for it, and its provider is asked once. What became
of a request whose reply was lost is found out by listing, for as long as it may still show up;
never by asking again. A box is gone when its provider lists it no longer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from trainer_runtime.core.files.durable import try_lock
from trainmaster.machines.check import check_host
from trainmaster.machines.renting.factory import Opener, opener
from trainmaster.machines.renting.lifecycle import STEPS, Due
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.store.detached import begin_locked
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import CloudError, HostError, TrainmasterError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
# Whoever looks at the box later begins anew: `tick`, a command, the next server.
_GIVE_UP_AFTER_S = 3600.0
_CHECK_S = 60.0
_LOOK_S = 0.1


async def advance_box(workspace: Workspace, tag: str, *, opened: Opener | None = None) -> list[str]:
    """Do what is due for a box; what was done, in words, empty where nothing was, or where another
    process is at it.

    Raises:
        CloudError: its provider can't be asked, or gives no answer; what was not done is still due.
        HostError: the box itself refuses.
    """
    lock = try_lock(workspace.home.box_lock(tag))
    if lock is None:
        return []
    try:
        return await _step(workspace, tag, opener(workspace, opened))
    finally:
        os.close(lock)


def begin_tending(workspace: Workspace, tag: str) -> bool:
    """Have a process of its own see to a box, where something is due and none does; True if so."""
    box = workspace.control.boxes.box(tag)
    if box is None or not is_busy(box):
        return False
    return begin_locked(workspace.home, workspace.home.box_lock(box.tag), "tend", box.tag)


async def tend(
    workspace: Workspace,
    tag: str,
    *,
    lock_descriptor: int | None = None,
    opened: Opener | None = None,
    patience_s: float = _GIVE_UP_AFTER_S,
) -> RentedBox | None:
    """See to a box until nothing is due any more; returns at once where another process does.

    `lock_descriptor`: the box's lock, where the caller was given it. A provider that gives no
    answer for `patience_s` is given up.
    """
    lock = lock_descriptor if lock_descriptor is not None else _lock(workspace, tag)
    if lock is None:
        return workspace.control.boxes.box(tag)
    try:
        was_ready = _is_ready(workspace, tag)
        await _until_quiet(workspace, tag, opener(workspace, opened), patience_s)
    finally:
        os.close(lock)
    if _is_ready(workspace, tag) and not was_ready:
        await _look_at_host(workspace, tag)
    return workspace.control.boxes.box(tag)


async def until(
    workspace: Workspace, tag: str, goes_on: Callable[[RentedBox], bool], wait_s: float
) -> RentedBox:
    """The box once `goes_on` is false for it, or `wait_s` is over. Whoever sees to it dies with
    nothing lost: another is started."""
    deadline = time.monotonic() + wait_s
    while True:
        box = workspace.control.boxes.box(tag)
        assert box is not None  # records are never removed
        if not goes_on(box) or time.monotonic() >= deadline:
            return box
        begin_tending(workspace, tag)
        await asyncio.sleep(_LOOK_S)


def is_busy(box: RentedBox) -> bool:
    """Whether something is due for a box that does not wait for anybody."""
    if box.state is RentState.READY:
        return box.body.get("release") is not None
    return box.open


async def _step(workspace: Workspace, tag: str, opened: Opener) -> list[str]:
    box = workspace.control.boxes.box(tag)
    if box is None or not box.open:
        return []
    cloud = opened(box.provider)
    try:
        did = await STEPS[box.state](Due(workspace, cloud, box, time.time()))
    finally:
        await cloud.disconnect()
    if box.body.get("trouble") is not None:
        workspace.control.boxes.change(box.tag, body={"trouble": None})
    return did


async def _until_quiet(workspace: Workspace, tag: str, opened: Opener, patience_s: float) -> None:
    pause_s, heard_s = _FIRST_PAUSE_S, time.monotonic()
    while time.monotonic() - heard_s < patience_s:
        try:
            did = await _step(workspace, tag, opened)
            heard_s = time.monotonic()
        except TrainmasterError as error:
            _note_trouble(workspace, tag, error)
            did = []
        box = workspace.control.boxes.box(tag)
        if box is None or not is_busy(box):
            return
        pause_s = _FIRST_PAUSE_S if did else min(1.5 * pause_s, _LONGEST_PAUSE_S)
        await asyncio.sleep(pause_s)


def _note_trouble(workspace: Workspace, tag: str, error: TrainmasterError) -> None:
    """For whoever waits for the box: why nothing moves."""
    told = error.to_dict()
    box = workspace.control.boxes.box(tag)
    if box is not None and box.body.get("trouble") != told:
        workspace.control.boxes.change(tag, body={"trouble": told})


def _lock(workspace: Workspace, tag: str) -> int | None:
    return try_lock(workspace.home.box_lock(tag))


def _is_ready(workspace: Workspace, tag: str) -> bool:
    box = workspace.control.boxes.box(tag)
    return box is not None and box.state is RentState.READY


async def _look_at_host(workspace: Workspace, tag: str) -> None:
    """For `hosts`: what a training would find there. What is wrong is told by its rows."""
    box = workspace.control.boxes.box(tag)
    if box is None:
        return
    try:
        await check_host(workspace, box.host, within_s=_CHECK_S)
    except (HostError, CloudError):
        return  # it is gone again
