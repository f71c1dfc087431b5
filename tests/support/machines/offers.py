"""Providers that only offer machines, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainmaster.machines.clouds import Box, BoxRequest, Cloud, Offer, Wanted
from trainmaster.machines.clouds.cloud import CloudName
from trainmaster.machines.renting.factory import Opener
from trainmaster.words.errors import CloudError

AT = 1_790_000_000.0
KEY_MISSING = CloudError(
    "CLOUD_KEY_MISSING", "There is no key.", "Set LAMBDA_API_KEY; keys are made in its console."
)


def offer(provider: CloudName, offer_id: str, usd_per_h: float, **changes: Any) -> Offer:
    """An offer of one H100, and what else is said."""
    made = Offer(
        provider, offer_id, "h100", "NVIDIA H100 80GB HBM3", 1, usd_per_h, AT, f"https://{provider}"
    )
    return replace(made, **changes)


@dataclass
class Shelf:
    """A `Cloud` that offers what lies on it and does nothing else. `fails`: what it says instead;
    `asked`: what it was asked for."""

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

    async def create(self, offer: Offer, request: BoxRequest) -> str:
        raise AssertionError("offers are only looked at")

    async def boxes(self) -> Sequence[Box]:
        return ()

    async def box(self, provider_id: str) -> Box | None:
        return None

    async def end(self, provider_id: str) -> None:
        raise AssertionError("offers are only looked at")

    def own_end(self, provider_id: str) -> None:
        return None

    async def disconnect(self) -> None:
        self.disconnected += 1


def opener(*shelves: Shelf) -> Opener:
    """Opens these; others have no key."""
    by_name = {shelf.name: shelf for shelf in shelves}

    def opened(name: str) -> Cloud:
        for known, shelf in by_name.items():
            if known == name:
                return shelf
        raise KEY_MISSING

    return opened
