"""The lease stored on a rented instance, and the timer there that ends the instance on time."""

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
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.lines import ODD_FIELDS
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.errors.errors import HostError, StateError
from trainmaster.machines.clouds import Cloud
from trainmaster.machines.open_host import open_host
from trainmaster.store.control.instances import RentedInstance
from trainmaster.sync.workspace import Workspace

_TIMEOUT_S = 30.0
_ANSWERS_WITHIN_S = 20.0
_MAX_LEASE_BYTES = 1 << 16
# An instance has no other clock than its own: beyond this skew its lease is written in that time.
_MAX_SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class LeaseTimer:
    """What an instance does by itself at its lease's end: whether it `can_self_terminate`, and a
    `description` of all of it."""

    can_self_terminate: bool
    description: str

    def to_record(self) -> dict[str, Any]:
        """As fields of the instance's record."""
        return {
            "can_self_terminate": self.can_self_terminate,
            "lease_timer": self.description,
        }


def lease_of(instance: RentedInstance, cloud: Cloud) -> Lease:
    """The lease for an instance, by this machine's clock."""
    assert instance.provider_id is not None
    return Lease(
        tag=instance.tag,
        provider=instance.provider,
        provider_id=instance.provider_id,
        end_t=instance.lease_end_t,
        own_end=cloud.self_termination(instance.provider_id),
    )


async def ensure_lease(workspace: Workspace, instance: RentedInstance, lease: Lease) -> LeaseTimer:
    """Write the lease and start the timer, which a reboot ends. Idempotent.

    Raises:
        HostError: the instance can't be reached, or its timer does not start.
    """
    host = open_host(workspace, instance.host)
    try:
        await host.place_runtime()  # creates its root, too
        return await write_lease(host, lease)
    finally:
        await host.disconnect()


async def write_lease(host: Host, lease: Lease) -> LeaseTimer:
    """Replace the lease on an instance, and make sure that its timer runs. Idempotent.

    The end is written in the instance's own time if its clock is wrong.

    Raises:
        HostError: the instance can't be reached, or its timer does not start.
    """
    skew_s = _skew_s(await _timer(host, "--report"))
    shifted = replace(lease, end_t=lease.end_t + skew_s)
    path = posixpath.join(await host.root(), LEASE)
    await host.put_file(path, json.dumps(shifted.to_dict()).encode())
    answer = await _timer(host, "--start")
    if not answer.runs:
        raise HostError(
            "ENVIRONMENT_UNUSABLE",
            f"The timer that ends {host.name} with its lease does not start.",
            f"See lease.log in {await host.root()} there.",
            retryable=True,
        )
    return lease_timer(lease, answer, skew_s)


async def read_lease(host: Host) -> Lease | None:
    """The lease stored on an instance; None if there is none.

    Raises:
        HostError: the instance can't be reached.
    """
    path = posixpath.join(await host.root(), LEASE)
    try:
        return Lease.of(decode_fields(await host.read(path, 0, _MAX_LEASE_BYTES), path))
    except ODD_FIELDS:
        return None


async def is_alive(workspace: Workspace, instance: RentedInstance) -> bool:
    """Whether a machine that holds this instance's lease answers over SSH."""
    if workspace.control.host(instance.host) is None:
        return False
    host = open_host(workspace, instance.host)
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            lease = await read_lease(host)
    except (HostError, StateError, TimeoutError):
        return False
    finally:
        await host.disconnect()
    return lease is not None and lease.tag == instance.tag


def lease_timer(lease: Lease, answer: TimerAnswer, skew_s: float = 0.0) -> LeaseTimer:
    """`answer`: the timer's, with what it lacks to end the instance; `skew_s`: how far its clock is
    ahead of this machine's, where the lease was shifted for that."""
    missing = answer.lacks
    text = "Stops its trainings in time for them to save, and "
    by_others = f"{command('release', 'INSTANCE')} or the keeper must end it."
    if lease.own_end is None:
        text += f"can't end the instance: {lease.provider} gives it no key for that. {by_others}"
    elif missing:
        text += f"can't end the instance: {missing}. {by_others}"
    else:
        text += f"then ends the instance at {lease.provider}."
    if skew_s:
        text += (
            f" Its clock is {spoken_duration(abs(skew_s))} {'ahead' if skew_s > 0 else 'behind'}."
        )
    return LeaseTimer(lease.own_end is not None and not missing, text)


def expected_timer(cloud: Cloud) -> LeaseTimer:
    """For an instance that does not exist yet."""
    own_end = cloud.self_termination("7")  # an id of any provider
    if own_end is None:
        return LeaseTimer(
            False,
            "the instance's own timer stops its trainings then, but can't end the instance: this "
            "machine or a keeper must",
        )
    text = "the instance's own timer then ends it"
    if own_end.tried_by:
        text += f", if {cloud.name} accepts the instance's own key, which is tried once it runs"
    return LeaseTimer(not own_end.tried_by, text)


def _skew_s(answer: TimerAnswer) -> float:
    skew_s = answer.t - time.time()
    return skew_s if abs(skew_s) > _MAX_SKEW_S else 0.0


async def _timer(host: Host, option: str) -> TimerAnswer:
    failure = Failure(
        f"The lease timer on {host.name} gave no valid answer",
        f"Run {command('hosts check', host.name)}.",
    )
    call = RuntimeCall("lease", [await host.root(), option], failure, _TIMEOUT_S, acts=True)
    return await runtime_call(host, call, TimerAnswer.of)
