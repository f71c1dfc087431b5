"""The port that every provider of rented instances implements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Literal, Protocol

from trainer_runtime.core.lease.lease import OwnEnd
from trainer_runtime.core.records import dataclass
from trainmaster.settings.clouds import CloudName

InstanceState = Literal["starting", "running", "stopped", "ending"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter for offers; None accepts anything.

    `gpu`: a name of `core.environment.gpus`; `count`: GPUs in one instance; `max_usd_h`: dollars
    per hour of the whole instance.
    """

    gpu: str | None = None
    count: int = 1
    max_usd_h: float | None = None
    region: str | None = None
    disk_gib: float | None = None
    interruptible: bool = False


# Names of GPUs, regions and offers that are quoted; anything else could be a sentence.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/()+,@-]{0,79}")
_HIGHEST_USD_PER_H = 10_000.0
_MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class Offer:
    """A machine type that can be rented now; None for what the provider does not state.

    `offer_id` is the provider's id, which `create` takes. `gpu`: its name in
    `core.environment.gpus`, or `gpu_name`, the provider's name, in lower case. `gpu_memory_gib` of
    one GPU; `disk_gib`: the maximum. `usd_per_h` of the whole instance, with the disk if a size was
    requested. `priced_t`: Unix time of the price; `source`: the URL that returned it.
    """

    provider: CloudName
    offer_id: str
    gpu: str
    gpu_name: str
    count: int
    usd_per_h: float
    priced_t: float
    source: str
    gpu_memory_gib: float | None = None
    cpu_cores: float | None = None
    memory_gib: float | None = None
    disk_gib: float | None = None
    region: str | None = None
    interruptible: bool = False

    @property
    def name(self) -> str:
        """Its name in commands: `runpod:ID`."""
        return f"{self.provider}:{self.offer_id}"

    @property
    def is_plain(self) -> bool:
        """Whether names and figures are of the kind that a person may be quoted."""
        names = (self.offer_id, self.gpu, self.gpu_name, *([self.region] if self.region else []))
        return (
            all(_PLAIN_NAME.fullmatch(name) for name in names)
            and 0 < self.usd_per_h <= _HIGHEST_USD_PER_H
            and 0 < self.count <= _MOST_GPUS
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Offer:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """How to create an instance. `tag` is unique, and becomes the instance's name at the provider.

    `public_key`: in OpenSSH format; its owner can log in. `image`: None for the provider's default,
    or Trainmaster's. `environment`: plain variables of the instance, never secrets.
    `max_usd_per_h`: the quote; a higher price is refused. `volume_id`: of a volume in `region`, to
    mount where `VolumeStore.mount` says.
    """

    tag: str
    public_key: str
    disk_gib: int
    max_usd_per_h: float
    image: str | None = None
    region: str | None = None
    volume_id: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as its provider lists it. `tag`: its name there, "" if it has none.

    `address`, `port` and `user`: for SSH; None until the provider states them. `usd_per_h`: its
    current price, None if the provider does not state it.
    """

    provider: CloudName
    provider_id: str
    tag: str
    state: InstanceState
    address: str | None = None
    port: int | None = None
    user: str = "root"
    usd_per_h: float | None = None
    created_t: float | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume as its provider lists it. `tag`: its name there; `size_gb` in 10^9 bytes;
    `usd_per_h`: at most."""

    provider_id: str
    tag: str
    size_gb: float
    usd_per_h: float
    region: str


class VolumeStore(Protocol):
    """The volumes of one provider. Errors are those of `Cloud`; only `create` can't be repeated.

    `mount`: the folder of a volume on an instance. `least_gb`, `most_gb`: sizes of one.
    """

    mount: str
    least_gb: int
    most_gb: int

    def usd_per_h(self, size_gb: int) -> float:
        """The most that a volume of this size costs an hour, used or not."""

    async def region_for(self, offer: Offer, region: str | None) -> str:
        """The exact region for a new volume: one that has the offer free, within `region`.

        Raises:
            CloudError: `NO_CAPACITY`; `VOLUME_UNSUPPORTED`, this offer can't have one.
        """

    async def create(self, tag: str, size_gb: int, region: str) -> str:
        """Create a volume and return its id; sent once, as `Cloud.create`."""

    async def volumes(self) -> Sequence[Volume]:
        """All volumes of the account, also those of other tools."""

    async def end(self, provider_id: str) -> None:
        """Delete a volume and all data on it. Idempotent."""


class Cloud(Protocol):
    """The client of one provider. All methods but `create` can be repeated: no provider supports
    idempotency keys.

    Each method raises `CloudError`: `CLOUD_KEY_REFUSED`, `CLOUD_UNREACHABLE` (also if the reply was
    lost, so that the request may have taken effect), `RATE_LIMITED` (429), `INVALID_RESPONSE`,
    `CLOUD_REFUSED`.

    `left_out`: how many of the last `offers` had no price or could not be read.
    """

    name: CloudName
    left_out: int

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        """Offers that match, cheapest first: interruptible ones or on-demand ones, never both."""

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        """One offer at its current price with a disk of that size; None if it no longer exists."""

    async def create(self, offer: Offer, request: InstanceRequest) -> str:
        """Rent an instance and return its id. The request is sent once, without retries.

        After `CLOUD_UNREACHABLE` and `INVALID_RESPONSE` the instance may exist; `instances` shows
        it. After any other error it does not.

        Raises:
            CloudError: also `NO_CAPACITY`, `PRICE_ABOVE_QUOTE`.
        """

    async def instances(self) -> Sequence[Instance]:
        """All instances of the account that have not ended, also those of other tools."""

    async def instance(self, provider_id: str) -> Instance | None:
        """One instance; None if the provider has none with this id, or it has ended."""

    async def end(self, provider_id: str) -> None:
        """End an instance and delete its disk. Idempotent: one that has ended raises no error."""

    def self_termination(self, provider_id: str) -> OwnEnd | None:
        """The request by which the instance can end itself, with a key limited to that, in the form
        of `core.lease.lease.Lease.own_end`; None if the provider has no such key."""

    def volume_store(self) -> VolumeStore:
        """Its network volumes.

        Raises:
            CloudError: `VOLUME_UNSUPPORTED`, with the reason.
        """

    async def disconnect(self) -> None:
        """Close connections. Idempotent."""
