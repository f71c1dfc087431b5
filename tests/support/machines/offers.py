"""In-memory providers that only list offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds import Cloud, Instance, InstanceRequest, Offer, Wanted
from trainmaster.machines.clouds.cloud import CloudName
from trainmaster.machines.renting.factory import CloudFactory

AT = 1_790_000_000.0
KEY_MISSING = CloudError(
    "CLOUD_KEY_MISSING", "The key is missing.", "Set LAMBDA_API_KEY; keys are made in its console."
)


def offer(provider: CloudName, offer_id: str, usd_per_h: float, **changes: Any) -> Offer:
    """An offer of one H100 with changes."""
    made = Offer(
        provider, offer_id, "h100", "NVIDIA H100 80GB HBM3", 1, usd_per_h, AT, f"https://{provider}"
    )
    return replace(made, **changes)


@dataclass
class OffersOnlyCloud:
    """A `Cloud` that only lists `stock`. `fails`: the error it raises instead; `asked`: the filters
    it was called with."""

    name: CloudName
    stock: Sequence[Offer] = ()
    fails: CloudError | None = None
    asked: list[Wanted] = field(default_factory=list)
    disconnected: int = 0
    left_out: int = 0

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        self.asked.append(wanted)
        if self.fails is not None:
            raise self.fails
        return [one for one in self.stock if one.interruptible == wanted.interruptible]

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        return next((one for one in self.stock if one.offer_id == offer_id), None)

    async def create(self, offer: Offer, request: InstanceRequest) -> str:
        raise AssertionError("unexpected call")

    async def instances(self) -> Sequence[Instance]:
        return ()

    async def instance(self, provider_id: str) -> Instance | None:
        return None

    async def end(self, provider_id: str) -> None:
        raise AssertionError("unexpected call")

    def self_termination(self, provider_id: str) -> None:
        return None

    async def disconnect(self) -> None:
        self.disconnected += 1


def cloud_factory(*clouds: OffersOnlyCloud) -> CloudFactory:
    """A factory for these; other providers have no key."""
    by_name = {cloud.name: cloud for cloud in clouds}

    def create(name: str) -> Cloud:
        for known, cloud in by_name.items():
            if known == name:
                return cloud
        raise KEY_MISSING

    return create
