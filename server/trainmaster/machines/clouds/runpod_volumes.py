"""RunPod's network volumes, through version 2 of its REST API.

Sources: api-reference-v2/openapi.json and pods/storage/types of github.com/runpod/docs, 2026-11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from trainmaster.machines.clouds.cloud import Offer, Volume
from trainmaster.machines.clouds.http import Api
from trainmaster.machines.clouds.offering import dollars, no_capacity
from trainmaster.machines.clouds.replies import Figure, InstanceReply, Name
from trainmaster.machines.clouds.volumes import unsupported

# Of a standard volume per GB and month; further terabytes cost less.
USD_PER_GB_H = 0.07 / 720
_PAGE = ("cursor", ("nextCursor", "next_cursor", "cursor"))


class _Volume(InstanceReply):
    name: Name = ""
    size: Figure = None
    dataCenter: Name = ""  # noqa: N815


class RunPodVolumes:
    """`free_region`: the data center in a region that has an offer free now; None for none."""

    mount = "/mnt/volume"
    least_gb, most_gb = 10, 4096

    def __init__(
        self, api: Api, free_region: Callable[[str, str | None], Awaitable[str | None]]
    ) -> None:
        self._api = api
        self._free_region = free_region

    def usd_per_h(self, size_gb: int) -> float:
        return dollars(size_gb * USD_PER_GB_H)

    async def region_for(self, offer: Offer, region: str | None) -> str:
        if not offer.offer_id.endswith(":secure"):
            raise unsupported(
                "runpod",
                "machines of its community cloud take no network volumes",
                "an offer with `secure`",
            )
        center = await self._free_region(offer.offer_id, region)
        if center is None:
            raise no_capacity(offer, "no data center has it free")
        return center

    async def create(self, tag: str, size_gb: int, region: str) -> str:
        body = {"name": tag, "size": size_gb, "dataCenter": region, "type": "STANDARD"}
        reply = await self._api.request("POST", "network-volumes", body=body)
        return self._api.parse_instance(reply, _Volume).id

    async def volumes(self) -> Sequence[Volume]:
        rows = await self._api.listed("network-volumes", rows="networkVolumes", page=_PAGE)
        listed = [self._api.parse_instance(row, _Volume) for row in rows]
        sizes = [row.size or 0.0 for row in listed]
        return [
            Volume(row.id, row.name, size, dollars(size * USD_PER_GB_H), row.dataCenter)
            for row, size in zip(listed, sizes, strict=True)
        ]

    async def end(self, provider_id: str) -> None:
        await self._api.end("DELETE", "network-volumes", provider_id)
