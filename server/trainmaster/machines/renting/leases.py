"""The lease that lies on a rented box, and the timer there that ends the box by it."""

from __future__ import annotations

import asyncio
import json
import posixpath
import time
from dataclasses import dataclass, replace
from typing import Any

from trainer_runtime.core.answers.timer import TimerAnswer
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.lease.lease import LEASE, Lease
from trainer_runtime.core.protocol.lines import ODD_FIELDS
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.machines.clouds import Cloud
from trainmaster.machines.registry import open_host
from trainmaster.store.control_instances import RentedBox
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import HostError, StateError

_TIMEOUT_S = 30.0
_ANSWERS_WITHIN_S = 20.0
_LONGEST_LEASE_BYTES = 1 << 16
# Boxes have their time from their hosts; by more than this, a lease is written in the box's time.
_MOST_SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class OwnTimer:
    """What a box can do by itself at the end of its lease: whether it `ends_itself`, and all of it
    in words."""

    ends_itself: bool
    words: str

    def to_body(self) -> dict[str, Any]:
        """As the box's record holds it."""
        return {"ends_itself": self.ends_itself, "own_timer": self.words}


def lease_of(box: RentedBox, cloud: Cloud) -> Lease:
    """The lease that belongs on a box, by this machine's clock."""
    assert box.provider_id is not None
    return Lease(
        tag=box.tag,
        provider=box.provider,
        provider_id=box.provider_id,
        end_t=box.lease_end_t,
        own_end=cloud.own_end(box.provider_id),
    )


async def keep(workspace: Workspace, box: RentedBox, lease: Lease) -> OwnTimer:
    """See that a box holds its lease, and that its timer runs, which a reboot ends. May be
    repeated.

    Raises:
        HostError: the box can't be reached, or its timer does not start.
    """
    host = open_host(workspace, box.host)
    try:
        await host.place_runtime()  # its root comes to be by that
        return await put(host, lease)
    finally:
        await host.disconnect()


async def put(host: Host, lease: Lease) -> OwnTimer:
    """Lay a lease down on a box, in place of the one before, and see that its timer runs.

    A box whose clock is wrong is told the end in its own time: it has nothing else to go by.

    Raises:
        HostError: the box can't be reached, or its timer does not start; may be repeated.
    """
    skew_s = _skew_s(await _timer(host, "--report"))
    there = replace(lease, end_t=lease.end_t + skew_s)
    path = posixpath.join(await host.root(), LEASE)
    await host.put_file(path, json.dumps(there.to_dict()).encode())
    answer = await _timer(host, "--start")
    if not answer.runs:
        raise HostError(
            "ENVIRONMENT_UNUSABLE",
            f"The timer that is to end {host.name} with its lease does not start.",
            f"Look into lease.log in {await host.root()} there.",
            retryable=True,
        )
    return own_timer(lease, answer, skew_s)


async def read(host: Host) -> Lease | None:
    """The lease that lies on a box; None for a box without one.

    Raises:
        HostError: the box can't be reached.
    """
    path = posixpath.join(await host.root(), LEASE)
    try:
        return Lease.of(decode_fields(await host.read(path, 0, _LONGEST_LEASE_BYTES), path))
    except ODD_FIELDS:
        return None


async def answers(workspace: Workspace, box: RentedBox) -> bool:
    """Whether a machine that holds this box's lease lets us in."""
    if workspace.control.host(box.host) is None:
        return False
    host = open_host(workspace, box.host)
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            known = await read(host)
    except (HostError, StateError, TimeoutError):
        return False
    finally:
        await host.disconnect()
    return known is not None and known.tag == box.tag


def own_timer(lease: Lease, answer: TimerAnswer, skew_s: float = 0.0) -> OwnTimer:
    """What a box can do by itself; `answer`: what its timer tells, `skew_s`: how far its clock is
    ahead of ours, where that was made up for."""
    told = "Stops its trainings in time, so that they are saved, and "
    lacks = answer.lacks
    if lease.own_end is None:
        told += (
            f"can't end itself: {lease.provider} gives a box no key for that. "
            "`trainmaster release` or the keeper has to."
        )
    elif lacks:
        told += f"can't end itself: {lacks}. `trainmaster release` or the keeper has to."
    else:
        told += f"then ends itself at {lease.provider}."
    if skew_s:
        told += f" Its clock is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}."
    return OwnTimer(lease.own_end is not None and not lacks, told)


def expected_timer(cloud: Cloud) -> OwnTimer:
    """Of a box that isn't there yet."""
    if cloud.own_end("a-box") is None:
        return OwnTimer(
            False,
            "the box's own timer stops its trainings then, but can't end the box: this machine or "
            "a keeper has to",
        )
    return OwnTimer(True, "the box's own timer ends it then by itself")


def _skew_s(answer: TimerAnswer) -> float:
    skew_s = answer.t - time.time()
    return skew_s if abs(skew_s) > _MOST_SKEW_S else 0.0


async def _timer(host: Host, option: str) -> TimerAnswer:
    failure = Failure(
        f"{host.name} could not be asked for its lease",
        f"`trainmaster hosts check {host.name}` finds the cause.",
    )
    call = RuntimeCall("lease", [await host.root(), option], failure, _TIMEOUT_S, acts=True)
    return await runtime_call(host, call, TimerAnswer.of)
