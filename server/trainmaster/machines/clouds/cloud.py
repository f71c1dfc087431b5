"""The port behind which every provider of machines looks alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from trainer_runtime.core.lease.lease import OwnEnd

CloudName = Literal["runpod", "vast", "lambda"]
BoxState = Literal["starting", "running", "stopped", "ending"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; None and 1 ask for nothing in particular.

    `gpu`: a name of `core.environment.gpus`; `count` GPUs in one box; `max_usd_h` for the whole box
    and hour.
    """

    gpu: str | None = None
    count: int = 1
    max_usd_h: float | None = None
    region: str | None = None
    disk_gib: float | None = None
    interruptible: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of machine that may be rented now.

    `offer_id` is the provider's own word, which `create` takes. `gpu`: its name in
    `core.environment.gpus`, the provider's own in small letters where that table lacks it.
    `gpu_memory_gib` of one GPU; `disk_gib`: the most that may be asked for, None where the provider
    does not say. `usd_per_h`:
    of the whole box, its disk included where `disk_gib` was wanted. `priced_t`: Unix time at which
    `source`, the address that was asked, said so.
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
        """What commands call it: `runpod:ID`."""
        return f"{self.provider}:{self.offer_id}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Offer:
        return cls(**data)


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """What a box is created with. `tag` is unique, and stands in the box's name at the provider.

    `public_key`: in OpenSSH's format, of whoever is to be let in. `image`: None for the provider's
    (or our) default. `environment`: plain variables of the box; never secrets of the operator's.
    `max_usd_per_h`: the quote; a provider that asks for more by now is not taken.
    """

    tag: str
    public_key: str
    disk_gib: int
    max_usd_per_h: float
    image: str | None = None
    region: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Box:
    """A box as its provider lists it. `tag`: the name that it was created with, "" without one.

    `address`, `port` and `user`: where SSH would be answered, None until the provider tells.
    `usd_per_h`: what it costs by the hour now, None where the provider does not say.
    """

    provider: CloudName
    provider_id: str
    tag: str
    state: BoxState
    address: str | None = None
    port: int | None = None
    user: str = "root"
    usd_per_h: float | None = None
    created_t: float | None = None


class Cloud(Protocol):
    """One provider. Only `create` may not be repeated blindly: none of them knows idempotency keys.

    Raises, each of them: `CloudError`: `CLOUD_KEY_REFUSED`, `CLOUD_UNREACHABLE` (also for a reply
    that was lost: what was asked for may have happened), `CLOUD_BUSY` (429), `CLOUD_ODD_REPLY`,
    `CLOUD_REFUSED`.

    `left_out`: how many of the last `offers` had no price or were otherwise not to be read.
    """

    name: CloudName
    left_out: int

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        """What could be rented now, cheapest first. `interruptible` ones, or the others."""

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        """One offer as it stands now, with a disk of that size; None where there is none."""

    async def create(self, offer: Offer, request: BoxRequest) -> str:
        """Rent a box; its id at the provider. Sent once, whatever happens.

        After `CLOUD_UNREACHABLE` and `CLOUD_ODD_REPLY` it is open whether there is a box: only
        `boxes` tells. After any other error there is none.

        Raises:
            CloudError: also `NO_CAPACITY`, `PRICE_ABOVE_QUOTE`.
        """

    async def boxes(self) -> Sequence[Box]:
        """Every box of the account that is not ended, whoever created it."""

    async def box(self, provider_id: str) -> Box | None:
        """One box; None where the provider has none of this id any more."""

    async def end(self, provider_id: str) -> None:
        """Have a box ended for good, its disk included; one that is gone is no error."""

    def own_end(self, provider_id: str) -> OwnEnd | None:
        """How the box can end itself by a key that is good for nothing else, as
        `core.lease.lease.Lease.own_end` holds it; None where the provider has no such key."""

    async def disconnect(self) -> None:
        """Let go of connections; may be repeated."""
