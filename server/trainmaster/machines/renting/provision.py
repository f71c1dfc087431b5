"""Renting a box: found, quoted, held against the caps, agreed to, put on record, then asked for.

A process of its own takes it from there, so that nobody who waits for it is needed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainer_runtime.core.protocol.duration import in_utc, spoken_duration
from trainmaster.machines.clouds import Offer, Wanted
from trainmaster.machines.registry import refuse_unusable_name
from trainmaster.machines.renting.caps import refuse_beyond_caps
from trainmaster.machines.renting.factory import Opener, opener
from trainmaster.machines.renting.instance_answers import provisioned, told_error
from trainmaster.machines.renting.instances import begin_tending, until
from trainmaster.machines.renting.keys import rented_key
from trainmaster.machines.renting.leases import expected_timer
from trainmaster.machines.renting.lifecycle import Bounds
from trainmaster.machines.renting.offers import DEFAULT_DISK_GIB, find_offer
from trainmaster.machines.renting.tags import home_of, new_tag
from trainmaster.machines.renting.token_price import prices_for
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.rentals import ProvisionAnswer
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import HostError, UsageError
from trainmaster.words.settings import read_settings

WAIT_S = 30.0
_HOUR_S = 3600.0
# Providers let pay for more than a moment, and the caps and the allowance count leases.
LEAST_HOURS = 0.1
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,254}")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,-]{0,39}")
_LONGEST_GPU_NAME = 60
_BOOTING = (RentState.INTENDED, RentState.CREATED)


@dataclass(frozen=True, slots=True)
class BoxWishes:
    """How a box is to be, besides its offer; None leaves it to us or to its provider.

    `spec`: a path or YAML text that is to be trained there, which its disk has to hold.
    """

    name: str | None = None
    image: str | None = None
    disk_gib: float | None = None
    region: str | None = None
    root: str | None = None
    spec: str | None = None


async def provision(
    workspace: Workspace,
    offer: str,
    *,
    hours: float,
    confirm: Confirm,
    name: str | None = None,
    image: str | None = None,
    disk_gib: float | None = None,
    region: str | None = None,
    root: str | None = None,
    spec: str | None = None,
    idempotency_key: str | None = None,
    wait_s: float = WAIT_S,
    bounds: Bounds | None = None,
    opened: Opener | None = None,
) -> ProvisionAnswer:
    """Rent a box for at most `hours`, which becomes the host `name`; waits `wait_s` for it.

    What is not done by then goes on by itself. The same `idempotency_key` again finds the first
    one's box, and asks nobody.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`, `CLOUD_UNKNOWN`, `IDEMPOTENCY_CONFLICT`.
        SpendError: `SPEND_CAP`, `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`; nothing was
            rented.
        PlanError: `spec` can't be trained there, `DISK_TOO_SMALL` among else; nothing was rented.
        CloudError: `OFFER_UNKNOWN`, `NO_CAPACITY`, `PRICE_ABOVE_QUOTE`, `BOX_DID_NOT_BOOT`, and
            whatever the provider says.
        HostError: `HOST_EXISTS`.
    """
    wishes = BoxWishes(name, image, disk_gib, region, root, spec)
    asked = json.dumps([offer, hours, name, image, disk_gib, region, root])
    key = IdempotencyKey(idempotency_key, "provision", asked) if idempotency_key else None
    clouds = opener(workspace, opened)
    box = None if key is None else workspace.control.boxes.of_key(key)
    if box is None:
        renting = _Renting(workspace, clouds, hours, wishes, bounds or Bounds())
        box = await renting.begin(offer, confirm, key)
    begin_tending(workspace, box.tag)
    box = await until(workspace, box.tag, lambda one: one.state in _BOOTING, wait_s)
    if box.state is RentState.ENDED and "error" in box.body:
        raise told_error(box.body["error"])
    return provisioned(box)


@dataclass(frozen=True, slots=True)
class _Renting:
    """What a box is asked for with."""

    workspace: Workspace
    clouds: Opener
    hours: float
    wishes: BoxWishes
    bounds: Bounds

    async def begin(self, name: str, confirm: Confirm, key: IdempotencyKey | None) -> RentedBox:
        """The intent on record, after all that speaks against it was looked at."""
        wishes = self.wishes
        _refuse_odd(self.hours, wishes)
        disk_gib = DEFAULT_DISK_GIB if wishes.disk_gib is None else wishes.disk_gib
        wanted = Wanted(region=wishes.region, disk_gib=disk_gib)
        offer = await find_offer(self.workspace, name, wanted, self.clouds)
        most_gib = offer.disk_gib or float("inf")
        if not 1.0 <= disk_gib <= most_gib:
            raise _bad("disk_gib", f"{name} can't have {disk_gib:g} GiB.", f"1–{most_gib:g}")
        if wishes.spec is not None:
            prices = await prices_for(self.workspace, wishes.spec)
            prices.plan_on(replace(offer, disk_gib=disk_gib))
        box = self._intent(offer, disk_gib)
        self._check(box, self.workspace.control.boxes.boxes())
        agreed_by = await confirm(self._quote(box, offer))
        rented_key(self.workspace.home)  # before anything is on record: it may be refused
        return self._record(box, agreed_by, key)

    def _intent(self, offer: Offer, disk_gib: float) -> RentedBox:
        tag = new_tag(self.workspace.control.boxes.home_id())
        name = self.wishes.name or f"{offer.provider}-{tag.rpartition('-')[2]}"
        now = time.time()
        cloud = self.clouds(offer.provider)
        request = {
            "disk_gib": round(disk_gib),
            "max_usd_per_h": offer.usd_per_h,
            "image": self.wishes.image,
            "region": self.wishes.region,
        }
        return RentedBox(
            tag=tag,
            host=name,
            provider=offer.provider,
            state=RentState.INTENDED,
            provider_id=None,
            intended_t=now,
            lease_end_t=now + self.hours * _HOUR_S,
            usd_per_h=offer.usd_per_h,
            budget_usd=offer.usd_per_h * self.hours,
            body={
                "offer": offer.to_dict(),
                "request": request,
                "root": self.wishes.root or DEFAULT_ROOT,
                **expected_timer(cloud).to_body(),
                "bounds": self.bounds.to_dict(),
            },
        )

    def _check(self, box: RentedBox, others: Sequence[RentedBox]) -> None:
        """Raises: HostError `HOST_EXISTS`, SpendError `SPEND_CAP`."""
        control = self.workspace.control
        taken = any(other.open and other.host == box.host for other in others)
        lain_on = any(run.host == box.host for run in control.runs())
        if taken or lain_on or control.host(box.host) is not None:
            raise HostError(
                "HOST_EXISTS",
                f"{box.host!r} is the name of a host, or of one that runs on record lay on.",
                "Take another name.",
                field="name",
            )
        settings = read_settings(self.workspace.home)
        refuse_beyond_caps(settings, others, box.usd_per_h, self.hours, time.time())

    def _quote(self, box: RentedBox, offer: Offer) -> Quote:
        wishes = [self.wishes.image, self.wishes.region, self.wishes.name, self.wishes.root]
        disk_gib = box.body["request"]["disk_gib"]
        asked = [offer.name, self.hours, disk_gib, *wishes]  # an approval is for a price by itself
        idle = read_settings(self.workspace.home).idle_minutes
        unasked = (
            ""
            if idle is None
            else f"It is given back once nothing has run there for {idle:g} min. "
        )
        features = [
            *(["interruptible"] if offer.interruptible else []),
            f"{disk_gib} GiB of disk",
            *([f"image {self.wishes.image}"] if self.wishes.image else []),
            *([f"region {self.wishes.region}"] if self.wishes.region else []),
        ]
        gpus = f"{offer.count} x {offer.gpu_name[:_LONGEST_GPU_NAME]}"
        text = (
            f"Rent {self.wishes.name or 'a box'}: {gpus} at {offer.provider} "
            f"({', '.join(features)}) for {offer.usd_per_h:.2f} $/h, at most "
            f"{spoken_duration(self.hours * _HOUR_S)}: {box.budget_usd:.2f} $ in all. "
            f"Rented now, its lease ends at {in_utc(box.lease_end_t)}; {box.body['own_timer']}. "
            f"{unasked}Records of its runs come here, and checkpoints, where the spec does not say "
            "`checkpoint: {mirror: none}`; all else is lost with the box."
        )
        return Quote("provision", json.dumps(asked), text, box.budget_usd)

    def _record(self, box: RentedBox, agreed_by: str, key: IdempotencyKey | None) -> RentedBox:
        """The lease counts from now: whoever had to agree may have taken long."""
        now = time.time()
        box = replace(
            box,
            intended_t=now,
            lease_end_t=now + self.hours * _HOUR_S,
            body={**box.body, "agreed_by": agreed_by},
        )
        records = self.workspace.control.boxes
        return records.add(box, key, lambda others: self._check(box, others))


def _refuse_odd(hours: float, wishes: BoxWishes) -> None:
    """Raises: UsageError; what is left may be shown to whoever has to agree."""
    if not LEAST_HOURS <= hours < float("inf"):
        raise _bad("hours", f"{hours:g} hours are no lease.", f"at least {LEAST_HOURS:g}")
    disk_gib = wishes.disk_gib
    if disk_gib is not None and not 1.0 <= disk_gib < float("inf"):
        raise _bad("disk_gib", f"No box has {disk_gib:g} GiB of disk.", "1 or more")
    if wishes.image is not None and not _IMAGE.fullmatch(wishes.image):
        raise _bad("image", f"{wishes.image!r} is no image.", "a name such as ORG/NAME:TAG")
    if wishes.region is not None and not _REGION.fullmatch(wishes.region):
        raise _bad("region", f"{wishes.region!r} is no region.", "one that `offers` shows")
    if wishes.name is not None:
        refuse_unusable_name(wishes.name)
        if home_of(wishes.name) is not None:  # a box would be taken for another
            raise UsageError(
                "UNSAFE_NAME",
                f"{wishes.name!r} is how boxes are tagged at their providers.",
                "Take another name.",
                field="name",
            )


def _bad(field: str, told: str, takes: str) -> UsageError:
    return UsageError("BAD_ARGUMENT", told, f"`{field}` takes {takes}.", field=field)
