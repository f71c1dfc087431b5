"""Rent an instance: find the offer, check the caps, quote, get agreement, record, then request.

A detached worker continues from the record, so no caller has to wait.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainer_runtime.core.environment.gpus import slug
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import gib_text, in_utc, spoken_duration, usd_text
from trainmaster.answers.rentals import ProvisionAnswer
from trainmaster.errors.confirmation import Confirm, Quote
from trainmaster.errors.errors import HostError, SpendError, UsageError
from trainmaster.machines.clouds import Offer, Wanted
from trainmaster.machines.clouds.offering import GB_PER_GIB, quoted_gpu
from trainmaster.machines.host_options import refuse_unusable_name
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory, with_timeout
from trainmaster.machines.renting.instance_answers import provision_answer, recorded_error
from trainmaster.machines.renting.instances import start_provision_worker, wait_while
from trainmaster.machines.renting.leases import expected_timer
from trainmaster.machines.renting.offers import DEFAULT_DISK_GIB, find_offer
from trainmaster.machines.renting.ssh_key import rented_key
from trainmaster.machines.renting.token_price import prices_for
from trainmaster.machines.renting.unrehearsed import unrehearsed
from trainmaster.machines.renting.volume_request import (
    AttachedVolume,
    VolumeRequest,
    attached_volume,
    home_of,
    new_tag,
    open_volume,
    refuse_short_lease,
    volume_in_use,
)
from trainmaster.machines.renting.volumes import with_volume_left
from trainmaster.runs.overview.volume_use import user_of
from trainmaster.runs.status.cost import Rented, all_rented, committed_usd, spent_usd
from trainmaster.settings.settings import Settings, read_settings
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.instances import (
    DEFAULT_TIMEOUTS,
    RentedInstance,
    RentState,
    RequestedInstance,
    Timeouts,
)
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace

WAIT_S = 30.0
_HOUR_S = 3600.0
# Providers have a minimum billing period, and the caps and the allowance count whole leases.
MIN_HOURS = 0.1
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,254}")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,-]{0,39}")
_BOOTING = (RentState.INTENDED, RentState.CREATED)


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """An offer as `offers` names it, and how long the instance may be used.

    `name`: of the host that it becomes. None leaves a field to Trainmaster or to the provider.
    `spec`: a path or YAML text to train there, whose data and checkpoints the disk must hold, and
    which is to be rehearsed before a longer lease.
    `keep`: it is not released when it is idle. `volume`: a network volume for its runs.
    The same `idempotency_key` again returns the first request's instance, without a new quote.
    """

    offer: str
    hours: float
    name: str | None = None
    image: str | None = None
    disk_gib: float | None = None
    region: str | None = None
    root: str | None = None
    spec: str | None = None
    idempotency_key: str | None = None
    keep: bool = False
    volume: VolumeRequest | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def key(self) -> IdempotencyKey | None:
        """The idempotency key, with the request that it stands for."""
        if not self.idempotency_key:
            return None
        chosen = [self.offer, self.hours, self.name, self.image]
        chosen += [self.disk_gib, self.region, self.root, *self.chosen_storage]
        return IdempotencyKey(self.idempotency_key, "provision", json.dumps(chosen))

    @property
    def chosen_storage(self) -> list[Any]:
        """What identifies the request beyond its other fields; empty for a plain instance."""
        keep = ["keep"] if self.keep else []
        return [*keep, *([asdict(self.volume)] if self.volume else [])]


async def provision(
    workspace: Workspace,
    request: ProvisionRequest,
    *,
    confirm: Confirm,
    wait_s: float = WAIT_S,
    factory: CloudFactory | None = None,
) -> ProvisionAnswer:
    """Rent an instance, which becomes a host; waits at most `wait_s` for it, and the rest happens
    in the background.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`, `CLOUD_UNKNOWN`, `IDEMPOTENCY_CONFLICT`.
        SpendError: `SPEND_CAP`, `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`; nothing was
            rented.
        PlanError: `spec` can't be trained there, such as `DISK_TOO_SMALL`; nothing was rented.
        CloudError: `OFFER_UNKNOWN`, `NO_CAPACITY`, `PRICE_ABOVE_QUOTE`, `INSTANCE_DID_NOT_BOOT`,
            and errors of the provider.
        HostError: `HOST_EXISTS`.
    """
    clouds = cloud_factory(workspace, factory)
    key = request.key
    instance = None if key is None else workspace.control.instances.of_key(key)
    if instance is None:
        instance = await _Rental(workspace, clouds, request).begin(confirm)
    start_provision_worker(workspace, instance.tag)
    instance = await wait_while(
        workspace, instance.tag, lambda current: current.state in _BOOTING, wait_s
    )
    if instance.state is RentState.ENDED and instance.end_error is not None:
        raise with_volume_left(workspace, instance, recorded_error(instance.end_error))
    return provision_answer(instance)


@dataclass(frozen=True, slots=True)
class _Rental:
    """A request on its way to a recorded intent."""

    workspace: Workspace
    clouds: CloudFactory
    request: ProvisionRequest

    async def begin(self, confirm: Confirm) -> RentedInstance:
        """Record the intent, after all checks and the user's agreement."""
        request = self.request
        _refuse_invalid(request)
        recorded = open_volume(self.workspace, request.volume)
        disk_gib = DEFAULT_DISK_GIB if request.disk_gib is None else request.disk_gib
        region = request.region if recorded is None else recorded.region
        wanted = Wanted(region=region, disk_gib=disk_gib)
        offer = await find_offer(self.workspace, request.offer, wanted, self.clouds)
        max_gib = offer.disk_gib or float("inf")
        if not 1.0 <= disk_gib <= max_gib:
            message = f"{request.offer} can't have {gib_text(disk_gib)}."
            raise _bad_argument("disk_gib", message, f"1–{max_gib:g}")
        attached = await self._attached(recorded, offer)
        training = None
        if request.spec is not None:
            prices = await prices_for(self.workspace, request.spec)
            room_gib = attached.volume.size_gb / GB_PER_GIB if attached else disk_gib
            prices.plan_on(replace(offer, disk_gib=room_gib))
            training = prices.spec
        instance = self._intent(offer, disk_gib, attached)
        self._check(instance, attached)
        quote = self._quote(instance, offer, attached)
        lacking = unrehearsed(self.workspace, training, request.hours)
        agreed_by = await confirm(quote if lacking is None else _unrehearsed_quote(quote, *lacking))
        rented_key(self.workspace.home)  # raises before anything is recorded
        return self._record(instance, attached, agreed_by)

    async def _attached(self, recorded: RentedVolume | None, offer: Offer) -> AttachedVolume | None:
        request = self.request.volume
        if request is None:
            return None
        if recorded is not None and recorded.provider != offer.provider:
            message = f"The volume {recorded.name} is at {recorded.provider}."
            raise _bad_argument("offer", message, f"one of {recorded.provider} with it")
        cloud = self.clouds(offer.provider)
        try:
            work = attached_volume(self.workspace, cloud.volume_store(), request, recorded, offer)
            return await with_timeout(cloud.name, work)
        finally:
            await cloud.disconnect()

    def _intent(
        self, offer: Offer, disk_gib: float, attached: AttachedVolume | None
    ) -> RentedInstance:
        request = self.request
        region = attached.volume.region if attached else request.region
        root = f"{attached.mount}/trainmaster" if attached else request.root or DEFAULT_ROOT
        tag = new_tag(self.workspace.control.instances.home_id())
        now = time.time()
        timer = expected_timer(self.clouds(offer.provider))
        default_host = f"{offer.provider}-{tag.rpartition('-')[2]}"
        return RentedInstance(
            tag=tag,
            host=request.name or self._last_host(attached) or default_host,
            provider=offer.provider,
            state=RentState.INTENDED,
            provider_id=None,
            intended_t=now,
            lease_end_t=now + request.hours * _HOUR_S,
            usd_per_h=offer.usd_per_h,
            budget_usd=offer.usd_per_h * request.hours,
            offer=offer.to_dict(),
            requested=RequestedInstance(round(disk_gib), offer.usd_per_h, request.image, region),
            root=root,
            keep=request.keep or None,
            volume=attached.volume.tag if attached else None,
            timeouts=request.timeouts,
            **timer.to_record(),
        )

    def _last_host(self, attached: AttachedVolume | None) -> str | None:
        """The name of the host that had the volume last: what it ran is found there again."""
        tag = attached.volume.tag if attached else None
        instances = self.workspace.control.instances.all() if tag else []
        return next(
            (instance.host for instance in reversed(instances) if instance.volume == tag), None
        )

    def _check(self, instance: RentedInstance, attached: AttachedVolume | None) -> None:
        """Raises: HostError `HOST_EXISTS`, SpendError `SPEND_CAP`, StateError `VOLUME_IN_USE`."""
        control = self.workspace.control
        last = control.instances.find(instance.host)
        is_open = last is not None and last.open
        is_volume = control.volumes.find(instance.host) is not None or (
            attached is not None and attached.volume.name == instance.host
        )
        had_runs = any(run.host == instance.host for run in control.runs())
        has_them = last is not None and attached is not None and last.volume == instance.volume
        is_taken = is_open or is_volume or (had_runs and not has_them)
        if is_taken or control.host(instance.host) is not None:
            raise HostError(
                "HOST_EXISTS",
                f"{instance.host!r} is the name of a host or volume, or of a former host of runs.",
                "Choose another name.",
                field="name",
            )
        if attached is not None:
            refuse_short_lease(attached.volume, instance.lease_end_t)
            if (user := user_of(self.workspace, attached.volume)) is not None:
                raise volume_in_use(attached.volume, user.host)
        rented, more_usd = all_rented(self.workspace), attached.more_usd if attached else 0.0
        settings = read_settings(self.workspace.home)
        refuse_beyond_caps(settings, rented, instance, self.request.hours, more_usd)

    def _quote(
        self, instance: RentedInstance, offer: Offer, attached: AttachedVolume | None
    ) -> Quote:
        request = self.request
        assert instance.requested is not None
        chosen = [request.image, request.region, request.name, request.root]
        # Without the price: an approval covers the same request at the quoted price or less.
        asked = [offer.name, request.hours, instance.requested.disk_gib, *chosen]
        asked += request.chosen_storage
        text = self._quote_text(instance, offer, attached)
        usd = instance.budget_usd + (attached.more_usd if attached else 0.0)
        return Quote("provision", json.dumps(asked), text, usd)

    def _quote_text(
        self, instance: RentedInstance, offer: Offer, attached: AttachedVolume | None
    ) -> str:
        request = self.request
        assert instance.requested is not None
        idle_minutes = read_settings(self.workspace.home).idle_minutes
        idle = f"It is released after {idle_minutes:g} min without a run. " if idle_minutes else ""
        if request.keep:
            idle = "It is kept for further runs until then, and costs while nothing runs. "
        volume = attached.quote_text() if attached else ""
        features = [
            *(["interruptible"] if offer.interruptible else []),
            f"{instance.requested.disk_gib} GiB of disk",
            *([f"image {request.image}"] if request.image else []),
            *([f"region {slug(request.region)}"] if request.region else []),
        ]
        return (
            f"Rent {request.name or 'an instance'}: {offer.count} x "
            f"{quoted_gpu(offer)} at {offer.provider} "
            f"({', '.join(features)}) for {usd_text(offer.usd_per_h)}/h, at most "
            f"{spoken_duration(request.hours * _HOUR_S)}: {usd_text(instance.budget_usd)} in "
            "total. "
            f"If rented now, its lease ends at {in_utc(instance.lease_end_t)}; "
            f"{instance.lease_timer}. {idle}{volume}Records of its runs are copied here, and "
            "checkpoints unless the spec says `checkpoint: {mirror: none}`; everything else is "
            "lost with the instance."
        )

    def _record(
        self, instance: RentedInstance, attached: AttachedVolume | None, agreed_by: str
    ) -> RentedInstance:
        """Start the lease now: the user may have taken long to agree."""
        now = time.time()
        lease_end_t = now + self.request.hours * _HOUR_S
        instance = replace(instance, intended_t=now, lease_end_t=lease_end_t, agreed_by=agreed_by)
        records, key = self.workspace.control.instances, self.request.key

        def check(_others: Sequence[RentedInstance]) -> None:
            self._check(instance, attached)
            if attached is not None:
                volume = replace(attached.volume, agreed_by=agreed_by)
                self.workspace.control.volumes.put(volume)

        return records.add(instance, key, check)


def _unrehearsed_quote(quote: Quote, warning: str, identity: str) -> Quote:
    asked = json.dumps([quote.asked, identity])
    return replace(quote, asked=asked, text=f"{quote.text} {warning}", by_person=True)


def _refuse_invalid(request: ProvisionRequest) -> None:
    """Raises: UsageError; the values left are safe to show in a quote."""
    hours, disk_gib = request.hours, request.disk_gib
    if not MIN_HOURS <= hours < float("inf"):
        raise _bad_argument(
            "hours", f"A lease can't have {hours:g} hours.", f"{MIN_HOURS:g} or more"
        )
    if disk_gib is not None and not 1.0 <= disk_gib < float("inf"):
        raise _bad_argument("disk_gib", f"A disk can't have {gib_text(disk_gib)}.", "1 or more")
    if request.image is not None and not _IMAGE.fullmatch(request.image):
        message = f"{request.image!r} is not a valid image name."
        raise _bad_argument("image", message, "a name such as ORG/NAME:TAG")
    if request.region is not None and not _REGION.fullmatch(request.region):
        message = f"{request.region!r} is not a valid region."
        raise _bad_argument("region", message, "one that `offers` shows")
    if request.name is not None:
        _refuse_name(request.name)
    if request.root is not None and request.volume is not None:
        message = f"With a volume, runs lie on it, not in {request.root}."
        raise _bad_argument("root", message, "no value then")


def _refuse_name(name: str) -> None:
    refuse_unusable_name(name)
    if home_of(name) is not None:  # it could be taken for another instance's tag
        raise UsageError(
            "UNSAFE_NAME",
            f"{name!r} has the form of an instance's tag.",
            "Choose another name.",
            field="name",
        )


def _bad_argument(field: str, message: str, accepted: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", message, f"`{field}` takes {accepted}.", field=field)


def refuse_beyond_caps(
    settings: Settings,
    rented: Sequence[Rented],
    instance: RentedInstance,
    hours: float,
    volume_usd: float,
) -> None:
    """Refuse an instance that would exceed a cap together with what is on record. `volume_usd`:
    what its network volume costs beyond what was agreed to before.

    Raises:
        SpendError: `SPEND_CAP`, naming the setting.
    """
    usd_per_h = instance.usd_per_h
    now = instance.intended_t
    if usd_per_h > settings.max_usd_h:
        raise _beyond("max_usd_h", f"{usd_text(usd_per_h)}/h", usd_text(settings.max_usd_h))
    if hours > settings.max_hours:
        raise _beyond("max_hours", f"a lease of {hours:g} h", f"{settings.max_hours:g} h")
    spent = sum(spent_usd(each, now) for each in rented)
    committed = sum(committed_usd(each, now) for each in rented)
    more_usd = instance.budget_usd + volume_usd
    total = spent + committed + more_usd
    if total > settings.max_usd_total:
        need = (
            f"{usd_text(more_usd)}, on top of {usd_text(spent)} spent and committed to open leases"
        )
        raise _beyond("max_usd_total", need, usd_text(settings.max_usd_total))


def _beyond(setting: str, need: str, cap: str) -> SpendError:
    is_total = setting == "max_usd_total"
    release = f", release what is rented ({command('costs')} lists it)" * is_total
    return SpendError(
        "SPEND_CAP",
        f"It would take {need}; `{setting}` allows {cap}.",
        f"Request less{release}, or have the owner of the settings raise `{setting}`: no tool can.",
        field=setting,
    )
