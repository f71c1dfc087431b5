"""The network volume of a request for an instance: one on record, or a new one."""

from __future__ import annotations

import math
import re
import secrets
import time
from dataclasses import dataclass, replace

from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import in_utc, spoken_duration, usd_text
from trainmaster.errors.errors import SpendError, StateError, UsageError
from trainmaster.machines.clouds import Offer
from trainmaster.machines.clouds.cloud import VolumeStore
from trainmaster.machines.host_options import refuse_unusable_name
from trainmaster.runs.overview.volume_use import MONTH_H, user_of
from trainmaster.runs.status.cost import spent_usd
from trainmaster.settings.settings import read_settings
from trainmaster.store.control.volumes import RentedVolume
from trainmaster.sync.workspace import Workspace

_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_TAG = re.compile(r"tm-([0-9a-f]{6})-[a-z2-7]{6}")
DEFAULT_DAYS = 7.0
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    """A volume by its `name`. `size_gb` and `region`: of a new one; `days`: the length of its lease
    from now, a week by default for a new one."""

    name: str
    size_gb: float | None = None
    days: float | None = None
    region: str | None = None


def volume_request(text: str | None, region: str | None) -> VolumeRequest | None:
    """The request that `NAME`, `NAME:GB`, `NAME:GB:DAYS` or `NAME::DAYS` stands for.

    Raises:
        UsageError: `BAD_ARGUMENT`.
    """
    if not text:
        return None
    name, *numbers = text.split(":")
    try:
        size_gb, days = [float(number) if number else None for number in [*numbers, "", ""][:2]]
    except ValueError:
        raise _invalid(f"{text!r} can't be read.") from None
    if len(numbers) > 2 or any(n is not None and not 0 < n < math.inf for n in (size_gb, days)):
        raise _invalid(f"{text!r} can't be read.")
    return VolumeRequest(name, size_gb, days, region)


@dataclass(frozen=True, slots=True)
class AttachedVolume:
    """A volume to attach; `agreed_usd`: what was agreed to before; `mount`: its folder there."""

    volume: RentedVolume
    agreed_usd: float
    mount: str

    @property
    def more_usd(self) -> float:
        """The maximum cost that is to be agreed to."""
        return max(0.0, self.volume.budget_usd - self.agreed_usd)

    def quote_text(self) -> str:
        volume = self.volume
        left = spoken_duration(max(0.0, volume.lease_end_t - time.time()))
        what = "the volume" if self.agreed_usd else "a new volume"
        return (
            f"Its runs, environments and data lie on {what} {volume.name} ({volume.size_gb} GB at "
            f"{volume.provider}, {volume.region}), which stays when the instance ends: "
            f"{usd_text(volume.usd_per_h)}/h, {usd_text(volume.usd_per_h * MONTH_H)} a month, for "
            f"{left}: {usd_text(self.more_usd)} more. After {in_utc(volume.lease_end_t)} it is "
            "deleted, but while it holds checkpoints of unfinished runs it is kept, and costs on. "
        )


def open_volume(workspace: Workspace, request: VolumeRequest | None) -> RentedVolume | None:
    """The volume of this name on record; None for a new one.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`.
        StateError: `VOLUME_IN_USE`.
    """
    if request is None:
        return None
    refuse_unusable_name(request.name)
    volume = workspace.control.volumes.find(request.name)
    if volume is None or not volume.open:
        _refuse_taken(workspace, request.name)
        return None
    if volume.release_requested_t is not None:
        message = f"The volume {volume.name} is being released."
        raise StateError("VOLUME_IN_USE", message, "Name another volume.")
    if (user := user_of(workspace, volume)) is not None:
        raise volume_in_use(volume, user.host)
    if request.size_gb is not None and request.size_gb != volume.size_gb:
        raise _invalid(f"The volume {volume.name} has {volume.size_gb} GB.")
    return volume


async def attached_volume(
    workspace: Workspace,
    store: VolumeStore,
    request: VolumeRequest,
    recorded: RentedVolume | None,
    offer: Offer,
) -> AttachedVolume:
    """The volume for an instance of `offer`, in the offer's region.

    Raises:
        UsageError: `BAD_ARGUMENT`.
        SpendError: `SPEND_CAP`.
        CloudError: `VOLUME_UNSUPPORTED`, `NO_CAPACITY`, errors of the provider.
    """
    _refuse_too_long(workspace, request)
    now = time.time()
    if recorded is not None:
        await store.region_for(offer, recorded.region)
        return AttachedVolume(_extended(recorded, request, now), recorded.budget_usd, store.mount)
    size_gb = 0 if request.size_gb is None else math.ceil(request.size_gb)
    if not store.least_gb <= size_gb <= store.most_gb:
        sizes = f"{store.least_gb} to {store.most_gb} GB"
        raise _invalid(f"{request.name} is a new volume, which takes {sizes}.")
    days = request.days or DEFAULT_DAYS
    usd_per_h = store.usd_per_h(size_gb)
    volume = RentedVolume(
        tag=new_tag(workspace.control.instances.home_id()),
        name=request.name,
        provider=offer.provider,
        region=await store.region_for(offer, request.region),
        size_gb=size_gb,
        usd_per_h=usd_per_h,
        intended_t=now,
        lease_end_t=now + days * _DAY_S,
        budget_usd=usd_per_h * days * 24,
    )
    return AttachedVolume(volume, 0.0, store.mount)


def refuse_short_lease(volume: RentedVolume, until_t: float) -> None:
    """Raises: UsageError `BAD_ARGUMENT`, its lease ends before the instance's."""
    if volume.lease_end_t < until_t:
        message = (
            f"The lease of the volume {volume.name} ends at {in_utc(volume.lease_end_t)}, before "
            f"the instance's at {in_utc(until_t)}."
        )
        raise _invalid(message)


def volume_in_use(volume: RentedVolume, host: str) -> StateError:
    return StateError(
        "VOLUME_IN_USE",
        f"The volume {volume.name} is attached to {host}.",
        f"Launch there, or end it first: {command('release', host)}.",
    )


def _extended(volume: RentedVolume, request: VolumeRequest, now: float) -> RentedVolume:
    """With a longer lease, where days are requested."""
    if request.days is None or now + request.days * _DAY_S <= volume.lease_end_t:
        return volume
    budget_usd = spent_usd(volume, now) + volume.usd_per_h * request.days * 24
    return replace(volume, lease_end_t=now + request.days * _DAY_S, budget_usd=budget_usd)


def _refuse_too_long(workspace: Workspace, request: VolumeRequest) -> None:
    most = read_settings(workspace.home).max_volume_days
    if (request.days or DEFAULT_DAYS) > most:
        raise SpendError(
            "SPEND_CAP",
            f"It would take a volume for {request.days or DEFAULT_DAYS:g} days; `max_volume_days` "
            f"allows {most:g}.",
            "Request less, or have the owner of the settings raise `max_volume_days`: no tool can.",
            field="max_volume_days",
        )


def _refuse_taken(workspace: Workspace, name: str) -> None:
    """A volume and a host never share a name: `release` takes both."""
    control = workspace.control
    if (
        home_of(name) is None
        and control.host(name) is None
        and control.instances.find(name) is None
    ):
        return
    raise UsageError(
        "UNSAFE_NAME",
        f"{name!r} is the name of a host, or of a former one.",
        "Choose another name for the volume.",
        field="volume",
    )


def _invalid(message: str) -> UsageError:
    fix = (
        "`volume` takes NAME of one on record, NAME:GB[:DAYS] for a new one, or NAME::DAYS to keep "
        "one for so long from now."
    )
    return UsageError("BAD_ARGUMENT", message, fix, field="volume")


def new_tag(home_id: str) -> str:
    return f"tm-{home_id}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


def home_of(tag: str) -> str | None:
    """The id of the home that made a tag; None for a name that is not a tag."""
    match = _TAG.fullmatch(tag)
    return match.group(1) if match else None
