"""One step of a rented instance's lifecycle, for each of its states. The caller holds its lock.

The provider's "running" proves nothing: an instance is ready once a command over SSH has succeeded.
That connection also pins its key, as for any host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import spoken_duration, usd_text
from trainmaster.errors.errors import CloudError, HostError, StateError
from trainmaster.machines.clouds import Cloud, Instance, InstanceRequest, Offer, Wanted
from trainmaster.machines.host_options import HostOptions
from trainmaster.machines.host_registry import add_host, remove_host
from trainmaster.machines.renting.drain import drain
from trainmaster.machines.renting.leases import LeaseTimer, ensure_lease, is_alive, lease_of
from trainmaster.machines.renting.ssh_key import rented_key
from trainmaster.machines.renting.volumes import create_volume
from trainmaster.store.control.instances import (
    RecordedError,
    ReleaseRequest,
    RentedInstance,
    RentState,
)
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace

# A listed price may exceed the quote by this much: providers round it.
_PRICE_SLACK_USD = 0.01
_MAX_ALTERNATIVES = 3
_TIMER_EVERY_S, _TIMER_S = 600.0, 20.0
LEASE_OVER = "lease_over"
GONE = "gone"


@dataclass(slots=True)
class Step:
    """One instance, its provider's client, and the time of this step."""

    workspace: Workspace
    cloud: Cloud
    instance: RentedInstance
    now: float

    @property
    def lease_is_over(self) -> bool:
        return self.now >= self.instance.lease_end_t

    @property
    def end_reason(self) -> str:
        release = self.instance.release
        return self.instance.end_reason or (release.reason if release else "") or "released"

    def change(self, state: RentState | None = None, **changes: Any) -> None:
        records = self.workspace.control.instances
        self.instance = records.change(self.instance.tag, state, **changes)

    async def close(self, reason: str, error: RecordedError | None = None) -> None:
        """Record that the instance has ended. Its host is removed first: if this process is killed
        in between, the open record remains and the step is repeated."""
        host = self.workspace.control.host(self.instance.host)
        if host is not None and host.key == str(self.workspace.home.rented_key):
            await remove_host(self.workspace, host.name, force=True)
        ended = {"end_reason": reason, "end_error": error or self.instance.end_error}
        self.change(RentState.ENDED, ended_t=self.now, **ended)

    async def listed(self) -> list[Instance]:
        """The provider's entries with this tag or id; the recorded id first. More than one means
        that the provider created two instances for one request."""
        mine = [instance for instance in await self.cloud.instances() if self._is_mine(instance)]
        recorded_id = self.instance.provider_id
        mine.sort(
            key=lambda instance: (instance.provider_id != recorded_id, instance.created_t or 0.0)
        )
        return mine

    async def keep_one(self) -> Instance | None:
        """The instance as it is listed; duplicates with its tag are ended."""
        mine = await self.listed()
        for duplicate in mine[1:]:
            await self.cloud.end(duplicate.provider_id)
        return mine[0] if mine else None

    async def find(self) -> Instance | None:
        """The instance at its provider: in the list, or by its id if the list is out of date."""
        instance = await self.keep_one()
        if instance is None and self.instance.provider_id is not None:
            instance = await self.cloud.instance(self.instance.provider_id)
        if instance is not None and not self.instance.first_listed_t:
            self.change(first_listed_t=self.now)
        return instance

    def _is_mine(self, instance: Instance) -> bool:
        return (
            instance.tag == self.instance.tag or instance.provider_id == self.instance.provider_id
        )


async def _intended(step: Step) -> list[str]:
    instance = await step.keep_one()
    requested_t = step.instance.create_requested_t
    if instance is not None:
        created = {"created_t": requested_t or step.now, "provider_id": instance.provider_id}
        step.change(RentState.CREATED, **created)
        return ["found it at its provider"]
    waited_s = step.now - (requested_t or step.instance.intended_t)
    if waited_s > step.instance.timeouts.late_s:
        await step.close("not_created", _never_listed(step.instance))
        return ["closed: nothing was created"]
    if requested_t is not None:
        return []
    if step.instance.volume is None:
        return await _create(step, None)
    return await _create_on_volume(step, step.instance.volume)


async def _create_on_volume(step: Step, tag: str) -> list[str]:
    """Create the instance's volume first, unless it exists."""
    volume = step.workspace.control.volumes.find(tag)
    assert volume is not None  # recorded with the intent, and never removed
    try:
        store = step.cloud.volume_store()
        volume = await create_volume(step.workspace, store, volume, step.now)
    except CloudError as error:
        if error.outcome_unknown or error.code == "RATE_LIMITED":
            raise
        await step.close(error.code, RecordedError.of(error))
        return [f"closed: {error.code}"]
    return [] if volume.provider_id is None else await _create(step, volume.provider_id)


async def _create(step: Step, volume_id: str | None) -> list[str]:
    offer = Offer.from_dict(step.instance.offer)
    requested = step.instance.requested
    assert requested is not None  # every intent has one
    public_key = rented_key(step.workspace.home).public
    step.change(create_requested_t=step.now)
    try:
        request = InstanceRequest(step.instance.tag, public_key, **asdict(requested))
        provider_id = await step.cloud.create(offer, replace(request, volume_id=volume_id))
    except CloudError as error:
        if error.code == "RATE_LIMITED":  # the request was not accepted: it may be sent again
            step.change(create_requested_t=None)
            raise
        if error.outcome_unknown:  # the provider's list shows whether there is an instance
            raise
        refused = await _with_alternatives(step.cloud, offer, error)
        await step.close(error.code, RecordedError.of(refused))
        return [f"closed: {error.code}"]
    step.change(RentState.CREATED, created_t=step.now, provider_id=provider_id)
    return ["created it"]


async def _created(step: Step) -> list[str]:
    listed = await step.find()
    if listed is None:
        return await _close_if_gone(step)
    if step.lease_is_over:
        return _give_up(step, LEASE_OVER, None)
    if (listed.usd_per_h or 0.0) > step.instance.usd_per_h + _PRICE_SLACK_USD:
        return _give_up(step, "PRICE_ABOVE_QUOTE", _too_expensive(step.instance, listed))
    if listed.address is not None and await _bootstrap(step, listed):
        return ["became ready"]
    assert step.instance.created_t is not None
    if step.now - step.instance.created_t > step.instance.timeouts.boot_s:
        return _give_up(step, "INSTANCE_DID_NOT_BOOT", _did_not_boot(step.instance))
    return []


async def _bootstrap(step: Step, listed: Instance) -> bool:
    done = await bootstrap_instance(step.workspace, step.cloud, step.instance, listed)
    step.change(boot_problem=done.problem)
    if done.timer is None:
        return False
    times = {"ready_t": step.now, "timer_checked_t": step.now}
    step.change(RentState.READY, **times, **done.timer.to_record())
    return True


async def _ready(step: Step) -> list[str]:
    if await step.find() is None:
        return await _close_if_gone(step)
    if step.lease_is_over and not step.instance.release:
        step.change(release=ReleaseRequest(step.now, force=True, reason=LEASE_OVER))
    request = step.instance.release
    if request is None:
        return await _check_timer(step)
    drained = await drain(step.workspace, step.instance, request, step.now)
    if drained is None:
        return []
    if drained.done:
        step.change(RentState.RELEASING, **drained.changes)
        return ["drained it"]
    # Keep a request that was made in the meantime.
    step.change(None, when=lambda instance: instance.release == request, **drained.changes)
    return ["kept it"]


async def _releasing(step: Step) -> list[str]:
    """End the instance on every step for as long as it is listed: whether the last request
    arrived is unknown."""
    requested = await _request_end(step)
    if requested and (await step.listed() or await _is_known(step)):
        return []
    requested_t = step.instance.create_requested_t
    if step.instance.provider_id is None and requested_t is not None:
        if not requested and step.now - requested_t <= step.instance.timeouts.late_s:
            return []  # the create request had no reply: the instance may still appear
        if requested:
            step.change(created_t=requested_t)  # it existed and cost money
    if not step.instance.end_requested_t:  # it was never found, so no end was requested
        await _refuse_if_alive(step)
    await step.close(step.end_reason)
    return ["released it"]


async def _request_end(step: Step) -> bool:
    """Request the end of everything listed for this instance, and of its recorded id. True if
    there was anything to end."""
    provider_ids = [instance.provider_id for instance in await step.listed()]
    if provider_ids and not step.instance.end_requested_t:
        step.change(end_requested_t=step.now)
    recorded_id = step.instance.provider_id
    if recorded_id is not None and recorded_id not in provider_ids:
        provider_ids.append(recorded_id)
    for provider_id in provider_ids:
        await step.cloud.end(provider_id)
    return bool(provider_ids)


STEPS: dict[RentState, Callable[[Step], Awaitable[list[str]]]] = {
    RentState.INTENDED: _intended,
    RentState.CREATED: _created,
    RentState.READY: _ready,
    RentState.RELEASING: _releasing,
}


async def _is_known(step: Step) -> bool:
    provider_id = step.instance.provider_id
    return provider_id is not None and await step.cloud.instance(provider_id) is not None


async def _close_if_gone(step: Step) -> list[str]:
    """Close an instance that its provider does not list, if it was listed before or is old enough
    to be. A second check follows after a pause: one empty list proves nothing."""
    instance = step.instance
    assert instance.created_t is not None
    is_young = step.now - instance.created_t <= instance.timeouts.late_s
    if is_young and not instance.first_listed_t:
        return []
    await asyncio.sleep(instance.timeouts.gone_s)
    if await step.find() is not None:
        return []
    await _refuse_if_alive(step)
    await step.close(LEASE_OVER if step.lease_is_over else GONE)
    return ["closed: its provider no longer lists it"]


async def _refuse_if_alive(step: Step) -> None:
    """Raises:
    CloudError: `INVALID_RESPONSE`, the instance is alive, but its provider does not list it.
    """
    instance = step.instance
    if await is_alive(step.workspace, instance):
        raise CloudError(
            "INVALID_RESPONSE",
            f"{instance.provider} does not list {instance.host} ({instance.tag}), but it still "
            "answers. It stays on record.",
            "Check that the provider's key belongs to the account that rented it; otherwise end it "
            "in the provider's console.",
            retryable=True,
        )


async def _check_timer(step: Step) -> list[str]:
    """Check every ten minutes that the instance's lease timer runs: a reboot ends it."""
    if step.now - (step.instance.timer_checked_t or 0.0) < _TIMER_EVERY_S:
        return []
    step.change(timer_checked_t=step.now)
    lease = lease_of(step.instance, step.cloud)
    with suppress(HostError, StateError, TimeoutError):  # the host's own checks report these
        async with asyncio.timeout(_TIMER_S):
            timer = await ensure_lease(step.workspace, step.instance, lease)
            step.change(**timer.to_record())
    return []


def _give_up(step: Step, reason: str, error: CloudError | None) -> list[str]:
    recorded = None if error is None else RecordedError.of(error)
    step.change(RentState.RELEASING, end_reason=reason, end_error=recorded)
    return [f"releases it: {reason}"]


async def _with_alternatives(cloud: Cloud, offer: Offer, error: CloudError) -> CloudError:
    """A `NO_CAPACITY` error with similar offers in its fix; any other error unchanged."""
    if error.code != "NO_CAPACITY":
        return error
    wanted = Wanted(gpu=offer.gpu, count=offer.count, interruptible=offer.interruptible)
    try:
        offers: Sequence[Offer] = await cloud.offers(wanted)
        if not [alternative for alternative in offers if alternative.name != offer.name]:
            offers = await cloud.offers(replace(wanted, gpu=None))
    except CloudError:
        return error
    others = [alternative for alternative in offers if alternative.name != offer.name][
        :_MAX_ALTERNATIVES
    ]
    if not others:
        return error
    text = ", ".join(
        f"{alternative.name} ({alternative.gpu}, {usd_text(alternative.usd_per_h)}/h)"
        for alternative in others
    )
    return CloudError(error.code, error.message, f"Similar offers: {text}.", error.retryable)


def _never_listed(instance: RentedInstance) -> RecordedError:
    return RecordedError(
        "CLOUD_UNREACHABLE",
        f"{instance.provider} did not answer the request for {instance.host}, and never listed it.",
        f"Request it again: nothing was rented. {command('costs')} shows it if it appears later.",
        retryable=True,
    )


def _too_expensive(instance: RentedInstance, listed: Instance) -> CloudError:
    return CloudError(
        "PRICE_ABOVE_QUOTE",
        f"{instance.provider} charges {usd_text(listed.usd_per_h)}/h for {instance.host}, "
        f"which was quoted at {usd_text(instance.usd_per_h)}; it was released.",
        f"See {command('offers')} for the current price.",
    )


def _did_not_boot(instance: RentedInstance) -> CloudError:
    last = f" Last attempt: {instance.boot_problem}" if instance.boot_problem else ""
    return CloudError(
        "INSTANCE_DID_NOT_BOOT",
        f"No SSH command succeeded on {instance.host} within "
        f"{spoken_duration(instance.timeouts.boot_s)}, and it was released.{last}",
        "Take another offer, or allow more time for a large image.",
        retryable=True,
    )


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """`timer`: the instance's running lease timer; None if it isn't ready, and `problem` says
    why."""

    timer: LeaseTimer | None = None
    problem: str | None = None


async def bootstrap_instance(
    workspace: Workspace, cloud: Cloud, instance: RentedInstance, listed: Instance
) -> Bootstrapped:
    """Add an instance as a host, write its lease there and start its timer. Idempotent."""
    try:
        await _add(workspace, instance, listed)
        lease = lease_of(instance, cloud)
        return Bootstrapped(timer=await ensure_lease(workspace, instance, lease))
    except (HostError, StateError) as error:  # also if our private key can't be read
        return Bootstrapped(problem=f"{error.code}: {error.message}")


async def _add(workspace: Workspace, instance: RentedInstance, listed: Instance) -> None:
    """Raises:
    HostError: nothing answers there yet, or it refuses the key.
    """
    host = f"[{listed.address}]" if ":" in (listed.address or "") else listed.address
    record = workspace.control.host(instance.host)
    if record is not None:
        if (record.address, record.port, record.user) == (listed.address, listed.port, listed.user):
            return
        await remove_host(workspace, instance.host, force=True)  # its address has changed
    await add_host(
        workspace,
        instance.host,
        f"{listed.user}@{host}" + (f":{listed.port}" if listed.port else ""),
        HostOptions(
            key=str(rented_key(workspace.home).private),
            root=instance.root or DEFAULT_ROOT,
        ),
    )
