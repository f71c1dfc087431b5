"""What providers list held against what is on record: strays, boxes that are gone, lost replies."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.machines.clouds import NAMES, Box, Cloud
from trainmaster.machines.renting.factory import Opener, in_time, opener
from trainmaster.machines.renting.instances import advance_box
from trainmaster.machines.renting.tags import home_of
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ReconcileAnswer, ReleaseAnswer, StrayRow
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import CloudError, TrainmasterError

_LOOK_S = 0.5
# Beside what a stray's end is waited for.
_REPLY_S = 8.0
# Of a provider that nobody means to rent from; told only where a box of it is on record.
_NOT_USED = frozenset({"CLOUD_KEY_MISSING", "CLOUD_UNKNOWN"})


@dataclass(frozen=True, slots=True)
class _Found:
    """What was listed, by provider; and of which there is no list, and why."""

    listed: dict[str, list[Box]]
    not_asked: dict[str, TrainmasterError]


async def reconcile(workspace: Workspace, *, opened: Opener | None = None) -> ReconcileAnswer:
    """Ask every provider that there is a key for, and do what is due for every open box.

    A provider that can't be asked is named in `not_asked`, and nothing is concluded from that. One
    without a key is, where a box of it is on record.
    """
    clouds = opener(workspace, opened)
    found = await _list_all(clouds)
    records = workspace.control.boxes
    did: dict[str, list[str]] = {}
    for box in records.boxes(only_open=True):
        if box.provider not in found.listed:
            continue
        try:
            done = await advance_box(workspace, box.tag, opened=clouds)
        except TrainmasterError as error:  # of one box
            done = [f"{error.code}: {error.message}"]
        if done:
            did[box.tag] = done
    did |= await _end_late(workspace, clouds, found)
    used = {box.provider for box in records.boxes(only_open=True)}
    not_asked = {
        name: f"{error.code}: {error.message}"
        for name, error in found.not_asked.items()
        if error.code not in _NOT_USED or name in used
    }
    strays = strays_among(workspace, found.listed)
    return ReconcileAnswer(
        did=did or None,
        strays=strays or None,
        not_asked=not_asked or None,
        next_step=f"Give it back: `trainmaster release {strays[0].box}`." if strays else None,
    )


def strays_among(workspace: Workspace, listed: dict[str, list[Box]]) -> list[StrayRow]:
    """The boxes with a tag of ours that no record knows."""
    records = workspace.control.boxes
    home_id = records.home_id()
    return [
        StrayRow(
            box=one.tag,
            provider=one.provider,
            provider_id=one.provider_id,
            usd_per_h=one.usd_per_h,
            of_this_home=home_of(one.tag) == home_id,
        )
        for boxes in listed.values()
        for one in boxes
        if home_of(one.tag) is not None and records.of_tag(one.tag) is None
    ]


async def release_stray(
    workspace: Workspace, tag: str, confirm: Confirm, wait_s: float, clouds: Opener
) -> ReleaseAnswer:
    """End a box with a tag of ours that no record knows.

    Raises:
        CloudError: `BOX_UNKNOWN`, `BOX_STILL_THERE`; what keeps a provider from being asked.
    """
    if home_of(tag) is None:
        raise _unknown(tag, ())
    found = await _list_all(clouds)
    mine = [one for boxes in found.listed.values() for one in boxes if one.tag == tag]
    if not mine:
        raise _unknown(tag, list(found.not_asked))
    of_this_home = home_of(tag) == workspace.control.boxes.home_id()
    whose = "this home" if of_this_home else "another home of the same account"
    text = (
        f"End {tag} at {mine[0].provider}: a box of {whose} that is not on record here. The "
        "machine and its disk are gone for good; whether anything runs there is not known."
    )
    await confirm(Quote("release", json.dumps([tag, "stray"]), text))
    cloud = clouds(mine[0].provider)
    try:
        await in_time(cloud.name, _end_for_good(cloud, tag, wait_s), wait_s + _REPLY_S)
    finally:
        await cloud.disconnect()
    return ReleaseAnswer(box=tag, host=tag, state="ended", spent_usd=0.0)


async def _list_all(clouds: Opener) -> _Found:
    """All at once: one that hangs keeps nobody from hearing of the others."""
    found = _Found({}, {})

    async def ask(name: str) -> None:
        try:
            cloud = clouds(name)
        except TrainmasterError as error:
            found.not_asked[name] = error
            return
        try:
            found.listed[name] = list(await in_time(name, cloud.boxes()))
        except CloudError as error:
            found.not_asked[name] = error
        finally:
            await cloud.disconnect()

    await asyncio.gather(*(ask(name) for name in NAMES))
    in_order = {name: found.listed[name] for name in NAMES if name in found.listed}
    return _Found(in_order, found.not_asked)


async def _end_late(workspace: Workspace, clouds: Opener, found: _Found) -> dict[str, list[str]]:
    """End what came to be after its record was closed: a request that a provider took its time
    with. What it has cost is noted, and it is looked for until it is gone."""
    did: dict[str, list[str]] = {}
    records = workspace.control.boxes
    for name, boxes in found.listed.items():
        for one in boxes:
            box = records.of_tag(one.tag) if home_of(one.tag) else None
            if box is None or box.open or one.state == "ending":
                continue
            cloud = clouds(name)
            try:
                await cloud.end(one.provider_id)
            except CloudError as error:
                did[one.tag] = [f"{error.code}: {error.message}"]
                continue
            finally:
                await cloud.disconnect()
            came_t = box.body.get("created_t") or one.created_t or box.intended_t
            records.change(box.tag, body={"created_t": came_t}, ended_t=time.time())
            did[one.tag] = ["ended it: it came after its record was closed"]
    return did


async def _end_for_good(cloud: Cloud, tag: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while mine := [one for one in await cloud.boxes() if one.tag == tag]:
        for one in mine:
            await cloud.end(one.provider_id)
        if time.monotonic() > deadline:
            raise CloudError(
                "BOX_STILL_THERE",
                f"{cloud.name} still lists {tag}, which was asked to end.",
                f"Try again: `trainmaster release {tag}`.",
                retryable=True,
            )
        await asyncio.sleep(_LOOK_S)


def _unknown(box: str, not_asked: Sequence[str]) -> CloudError:
    told = f" Could not ask: {', '.join(not_asked)}." if not_asked else ""
    return CloudError(
        "BOX_UNKNOWN",
        f"No rented box is called {box!r}.{told}",
        "`trainmaster costs` lists those that are on record.",
        retryable=bool(not_asked),
    )
