"""What is due for a box in each of its states, done under the box's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainmaster.machines.clouds import Box, BoxRequest, Cloud, Offer, Wanted
from trainmaster.machines.registry import remove_host
from trainmaster.machines.renting.bootstrap import let_in
from trainmaster.machines.renting.drain import take_leave
from trainmaster.machines.renting.keys import rented_key
from trainmaster.machines.renting.leases import answers, keep, lease_of
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import CloudError, HostError, StateError

# After these it is open whether something was created; after any other, nothing was.
_OPEN = frozenset({"CLOUD_UNREACHABLE", "CLOUD_ODD_REPLY"})
# What a listed price may be above the quote: it is rounded.
_PRICE_SLACK_USD = 0.01
_OTHERS_TOLD = 3
_TIMER_EVERY_S, _TIMER_S = 600.0, 20.0
LEASE_OVER = "lease_over"
GONE = "gone"


@dataclass(frozen=True, slots=True)
class Bounds:
    """`boot_s`: from the request to the first SSH command that succeeds; an image of tens of GiB
    takes ten minutes. `late_s`: for how long a box may be there without being listed, after a
    request whose reply was lost; `gone_s`: how long after a first look that does not find a box a
    second one is taken, before it counts as gone."""

    boot_s: float = 900.0
    late_s: float = 120.0
    gone_s: float = 3.0

    @classmethod
    def of(cls, box: RentedBox) -> Bounds:
        return cls(**box.body.get("bounds", {}))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Due:
    """One box, its provider, and the time of this step."""

    workspace: Workspace
    cloud: Cloud
    box: RentedBox
    now: float

    @property
    def bounds(self) -> Bounds:
        return Bounds.of(self.box)

    def change(
        self, state: RentState | None = None, body: Mapping[str, Any] | None = None, **columns: Any
    ) -> None:
        records = self.workspace.control.boxes
        self.box = records.change(self.box.tag, state, body=body, **columns)

    async def close(self, reason: str, error: Mapping[str, Any] | None = None) -> None:
        """Note that there is no box any more; its host goes first, so that a kill loses neither."""
        host = self.workspace.control.host(self.box.host)
        if host is not None and host.key == str(self.workspace.home.rented_key):
            await remove_host(self.workspace, host.name, force=True)
        told = {"reason": reason, **({"error": dict(error)} if error is not None else {})}
        self.change(RentState.ENDED, body=told, ended_t=self.now)

    async def listed(self) -> list[Box]:
        """What the provider lists of this box, the one that counts first; there is never more than
        one, unless a provider has made two of one request."""
        mine = [one for one in await self.cloud.boxes() if self._is_mine(one)]
        mine.sort(key=lambda one: (one.provider_id != self.box.provider_id, one.created_t or 0.0))
        return mine

    async def only_one(self) -> Box | None:
        """The box as it is listed; others of its tag are ended."""
        mine = await self.listed()
        for other in mine[1:]:
            await self.cloud.end(other.provider_id)
        return mine[0] if mine else None

    def _is_mine(self, one: Box) -> bool:
        return one.tag == self.box.tag or one.provider_id == self.box.provider_id


async def _intended(due: Due) -> list[str]:
    box = await due.only_one()
    if box is not None:
        began_t = due.box.body.get("asked_t") or due.now
        due.change(RentState.CREATED, {"created_t": began_t}, provider_id=box.provider_id)
        return ["found it at its provider"]
    asked_t = due.box.body.get("asked_t")
    if due.now - (asked_t or due.box.intended_t) > due.bounds.late_s:
        await due.close("not_created", _never_seen(due.box))
        return ["closed: nothing was created"]
    return await _create(due) if asked_t is None else []


async def _create(due: Due) -> list[str]:
    offer = Offer.from_dict(due.box.body["offer"])
    asked = due.box.body["request"]
    request = BoxRequest(due.box.tag, rented_key(due.workspace.home).public, **asked)
    due.change(body={"asked_t": due.now})
    try:
        provider_id = await due.cloud.create(offer, request)
    except CloudError as error:
        if error.code == "CLOUD_BUSY":  # it took no request: another one may go out
            due.change(body={"asked_t": None})
            raise
        if error.code in _OPEN:
            raise
        told = await _with_others(due.cloud, offer, error)
        await due.close(error.code, told.to_dict())
        return [f"closed: {error.code}"]
    due.change(RentState.CREATED, {"created_t": due.now}, provider_id=provider_id)
    return ["created it"]


async def _created(due: Due) -> list[str]:
    box = await _here(due)
    if box is None:
        return await _close_where_gone(due)
    if _is_over(due):
        return _give_up(due, LEASE_OVER, None)
    if (box.usd_per_h or 0.0) > due.box.usd_per_h + _PRICE_SLACK_USD:
        return _give_up(due, "PRICE_ABOVE_QUOTE", _too_dear(due.box, box))
    if box.address is not None:
        admitted = await let_in(due.workspace, due.cloud, due.box, box)
        due.change(body={"waits_for": admitted.waits_for})
        if admitted.own_timer is not None:
            told = {"ready_t": due.now, "timer_t": due.now}
            due.change(RentState.READY, {**told, **admitted.own_timer.to_body()})
            return ["came in"]
    if due.now - float(due.box.body["created_t"]) > due.bounds.boot_s:
        return _give_up(due, "BOX_DID_NOT_BOOT", _did_not_boot(due.box, due.bounds))
    return []


async def _ready(due: Due) -> list[str]:
    if await _here(due) is None:
        return await _close_where_gone(due)
    if _is_over(due) and not due.box.body.get("release"):
        release = {"t": due.now, "force": True, "why": LEASE_OVER}
        due.change(body={"release": release})
    if not due.box.body.get("release"):
        return await _keep_lease(due)
    asked = due.box.body["release"]
    told = await take_leave(due.workspace, due.box, due.now)
    if told is None:
        return []
    if told.leaves:
        due.change(RentState.RELEASING, told.body)
        return ["took leave of it"]
    # Somebody may have asked for more since.
    due.change(None, told.body, when=lambda box: box.body.get("release") == asked)
    return ["kept it"]


async def _releasing(due: Due) -> list[str]:
    """Ended again as long as it is listed: whether the last request came through is not known."""
    known = [one.provider_id for one in await due.listed()]
    if known and not due.box.body.get("end_asked_t"):
        due.change(body={"end_asked_t": due.now})
    if due.box.provider_id is not None and due.box.provider_id not in known:
        known.append(due.box.provider_id)
    for provider_id in known:
        await due.cloud.end(provider_id)
    if known and (await due.listed() or await _still_known(due)):
        return []
    asked_t = due.box.body.get("asked_t")
    if due.box.provider_id is None and asked_t is not None:
        if known:
            due.change(body={"created_t": asked_t})  # it was there, for some time
        elif due.now - asked_t <= due.bounds.late_s:
            return []  # it may show up yet
    body = due.box.body
    if not body.get("end_asked_t"):  # it was never found, so nobody was asked
        await _refuse_if_it_answers(due)
    reason = str(body.get("reason") or (body.get("release") or {}).get("why") or "released")
    await due.close(reason)
    return ["gave it back"]


STEPS: dict[RentState, Callable[[Due], Awaitable[list[str]]]] = {
    RentState.INTENDED: _intended,
    RentState.CREATED: _created,
    RentState.READY: _ready,
    RentState.RELEASING: _releasing,
}


async def _here(due: Due) -> Box | None:
    """The box as its provider tells of it; a list may be older than the box itself."""
    box = await due.only_one()
    if box is None and due.box.provider_id is not None:
        box = await due.cloud.box(due.box.provider_id)
    if box is not None and not due.box.body.get("seen_t"):
        due.change(body={"seen_t": due.now})
    return box


async def _still_known(due: Due) -> bool:
    known = due.box.provider_id
    return known is not None and await due.cloud.box(known) is not None


async def _close_where_gone(due: Due) -> list[str]:
    """Close a box that its provider does not know: one that it has listed, or could have by now.

    One look that doesn't find it proves nothing.
    """
    body = due.box.body
    young = due.now - float(body["created_t"]) <= due.bounds.late_s
    if young and not body.get("seen_t"):
        return []
    await asyncio.sleep(due.bounds.gone_s)
    if await _here(due) is not None:
        return []
    await _refuse_if_it_answers(due)
    await due.close(LEASE_OVER if _is_over(due) else GONE)
    return ["closed: its provider lists it no longer"]


async def _refuse_if_it_answers(due: Due) -> None:
    """Raises:
    CloudError: `CLOUD_ODD_REPLY`, the box lives, though its provider knows none.
    """
    if await answers(due.workspace, due.box):
        raise CloudError(
            "CLOUD_ODD_REPLY",
            f"{due.box.provider} knows nothing of {due.box.host} ({due.box.tag}), which answers "
            "all the same, and is kept on record.",
            "Look whether the provider's key is that of the account that rented it; else end it at "
            "the provider's own page.",
            retryable=True,
        )


async def _keep_lease(due: Due) -> list[str]:
    """See now and then that the box's own timer runs: a reboot ends it."""
    if due.now - float(due.box.body.get("timer_t") or 0.0) < _TIMER_EVERY_S:
        return []
    due.change(body={"timer_t": due.now})
    lease = lease_of(due.box, due.cloud)
    with suppress(HostError, StateError, TimeoutError):  # what is wrong with it, others tell
        async with asyncio.timeout(_TIMER_S):
            due.change(body=(await keep(due.workspace, due.box, lease)).to_body())
    return []


def _is_over(due: Due) -> bool:
    return due.now >= due.box.lease_end_t


def _give_up(due: Due, reason: str, error: CloudError | None) -> list[str]:
    told = {"error": error.to_dict()} if error is not None else {}
    due.change(RentState.RELEASING, {"reason": reason, **told})
    return [f"gives it back: {reason}"]


async def _with_others(cloud: Cloud, offer: Offer, error: CloudError) -> CloudError:
    """A refusal for want of machines, with what else there is."""
    if error.code != "NO_CAPACITY":
        return error
    wanted = Wanted(gpu=offer.gpu, count=offer.count, interruptible=offer.interruptible)
    try:
        found: Sequence[Offer] = await cloud.offers(wanted)
        if not [one for one in found if one.name != offer.name]:
            found = await cloud.offers(replace(wanted, gpu=None))
    except CloudError:
        return error
    others = [one for one in found if one.name != offer.name][:_OTHERS_TOLD]
    if not others:
        return error
    told = ", ".join(f"{one.name} ({one.gpu}, {one.usd_per_h:.2f} $/h)" for one in others)
    return CloudError(error.code, error.message, f"Next there are: {told}.", error.retryable)


def _never_seen(box: RentedBox) -> Mapping[str, Any]:
    return CloudError(
        "CLOUD_UNREACHABLE",
        f"{box.provider} gave no answer to the request for {box.host}, and has never listed it.",
        "Ask for it again: nothing was rented. `trainmaster costs` would show it if it came late.",
        retryable=True,
    ).to_dict()


def _too_dear(box: RentedBox, listed: Box) -> CloudError:
    return CloudError(
        "PRICE_ABOVE_QUOTE",
        f"{box.provider} asks {listed.usd_per_h:.2f} $/h for {box.host}, which was quoted at "
        f"{box.usd_per_h:.2f}; it was given back.",
        "See `trainmaster offers` for what it costs now.",
    )


def _did_not_boot(box: RentedBox, bounds: Bounds) -> CloudError:
    waits_for = box.body.get("waits_for")
    last = f" The last try: {waits_for}" if waits_for else ""
    return CloudError(
        "BOX_DID_NOT_BOOT",
        f"{box.host} took no SSH command within {bounds.boot_s / 60:.0f} min, and was given back."
        f"{last}",
        "Take another offer, or allow more time for a large image.",
        retryable=True,
    )
