"""Rent an instance: find the offer, check the caps, quote, get agreement, record, then request.

A detached worker continues from the record, so no caller has to wait.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from trainer_runtime.core.environment.gpus import slug
from trainer_runtime.core.protocol.figures import gib_text, in_utc, spoken_duration, usd_text
from trainer_runtime.core.records import dataclass
from trainmaster.machines.clouds import Offer, Wanted
from trainmaster.machines.clouds.offering import quoted_gpu
from trainmaster.machines.host_options import refuse_unusable_name
from trainmaster.machines.renting.caps import refuse_beyond_caps
from trainmaster.machines.renting.factory import CloudFactory, cloud_factory
from trainmaster.machines.renting.instance_answers import provision_answer, recorded_error
from trainmaster.machines.renting.instances import start_provision_worker, wait_while
from trainmaster.machines.renting.keys import rented_key
from trainmaster.machines.renting.leases import expected_timer
from trainmaster.machines.renting.offers import DEFAULT_DISK_GIB, find_offer
from trainmaster.machines.renting.tags import home_of, new_tag
from trainmaster.machines.renting.token_price import prices_for
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.instances import (
    DEFAULT_TIMEOUTS,
    RentedInstance,
    RentState,
    RequestedInstance,
    Timeouts,
)
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ProvisionAnswer
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import HostError, UsageError
from trainmaster.words.settings import read_settings

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
    `spec`: a path or YAML text to train there, whose data and checkpoints the disk must hold.
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
    timeouts: Timeouts = DEFAULT_TIMEOUTS

    @property
    def key(self) -> IdempotencyKey | None:
        """The idempotency key, with the request that it stands for."""
        if not self.idempotency_key:
            return None
        chosen = [self.offer, self.hours, self.name, self.image]
        chosen += [self.disk_gib, self.region, self.root]
        return IdempotencyKey(self.idempotency_key, "provision", json.dumps(chosen))


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
    instance = await wait_while(workspace, instance.tag, lambda one: one.state in _BOOTING, wait_s)
    if instance.state is RentState.ENDED and instance.end_error is not None:
        raise recorded_error(instance.end_error)
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
        disk_gib = DEFAULT_DISK_GIB if request.disk_gib is None else request.disk_gib
        wanted = Wanted(region=request.region, disk_gib=disk_gib)
        offer = await find_offer(self.workspace, request.offer, wanted, self.clouds)
        max_gib = offer.disk_gib or float("inf")
        if not 1.0 <= disk_gib <= max_gib:
            message = f"{request.offer} can't have {gib_text(disk_gib)}."
            raise _bad_argument("disk_gib", message, f"1–{max_gib:g}")
        if request.spec is not None:
            prices = await prices_for(self.workspace, request.spec)
            prices.plan_on(replace(offer, disk_gib=disk_gib))
        instance = self._intent(offer, disk_gib)
        self._check(instance, self.workspace.control.instances.all())
        agreed_by = await confirm(self._quote(instance, offer))
        rented_key(self.workspace.home)  # raises before anything is recorded
        return self._record(instance, agreed_by)

    def _intent(self, offer: Offer, disk_gib: float) -> RentedInstance:
        request = self.request
        tag = new_tag(self.workspace.control.instances.home_id())
        now = time.time()
        timer = expected_timer(self.clouds(offer.provider))
        return RentedInstance(
            tag=tag,
            host=request.name or f"{offer.provider}-{tag.rpartition('-')[2]}",
            provider=offer.provider,
            state=RentState.INTENDED,
            provider_id=None,
            intended_t=now,
            lease_end_t=now + request.hours * _HOUR_S,
            usd_per_h=offer.usd_per_h,
            budget_usd=offer.usd_per_h * request.hours,
            offer=offer.to_dict(),
            requested=RequestedInstance(
                round(disk_gib), offer.usd_per_h, request.image, request.region
            ),
            root=request.root or DEFAULT_ROOT,
            timeouts=request.timeouts,
            **timer.to_record(),
        )

    def _check(self, instance: RentedInstance, others: Sequence[RentedInstance]) -> None:
        """Raises: HostError `HOST_EXISTS`, SpendError `SPEND_CAP`."""
        control = self.workspace.control
        is_taken = any(other.open and other.host == instance.host for other in others)
        had_runs = any(run.host == instance.host for run in control.runs())
        if is_taken or had_runs or control.host(instance.host) is not None:
            raise HostError(
                "HOST_EXISTS",
                f"{instance.host!r} is the name of a host, or of a former host of recorded runs.",
                "Choose another name.",
                field="name",
            )
        settings = read_settings(self.workspace.home)
        refuse_beyond_caps(settings, others, instance.usd_per_h, self.request.hours, time.time())

    def _quote(self, instance: RentedInstance, offer: Offer) -> Quote:
        request = self.request
        assert instance.requested is not None
        chosen = [request.image, request.region, request.name, request.root]
        # Without the price: an approval covers the same request at the quoted price or less.
        asked = [offer.name, request.hours, instance.requested.disk_gib, *chosen]
        text = self._quote_text(instance, offer, instance.requested.disk_gib)
        return Quote("provision", json.dumps(asked), text, instance.budget_usd)

    def _quote_text(self, instance: RentedInstance, offer: Offer, disk_gib: int) -> str:
        request = self.request
        idle_minutes = read_settings(self.workspace.home).idle_minutes
        idle = f"It is released after {idle_minutes:g} min without a run. " if idle_minutes else ""
        features = [
            *(["interruptible"] if offer.interruptible else []),
            f"{disk_gib} GiB of disk",
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
            f"{instance.lease_timer}. {idle}Records of its runs are copied here, and checkpoints "
            "unless the spec says `checkpoint: {mirror: none}`; everything else is lost with the "
            "instance."
        )

    def _record(self, instance: RentedInstance, agreed_by: str) -> RentedInstance:
        """Start the lease now: the user may have taken long to agree."""
        now = time.time()
        lease_end_t = now + self.request.hours * _HOUR_S
        instance = replace(instance, intended_t=now, lease_end_t=lease_end_t, agreed_by=agreed_by)
        records, key = self.workspace.control.instances, self.request.key
        return records.add(instance, key, lambda others: self._check(instance, others))


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
