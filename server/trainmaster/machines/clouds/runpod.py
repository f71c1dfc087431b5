"""RunPod's pods, through version 2 of its REST API.

Sources: api-reference-v2/openapi.json and pods/pricing.mdx of github.com/runpod/docs, 2026-08-20.

Sources: api-reference-v2/openapi.json and pods/storage/types of github.com/runpod/docs, 2026-11.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from trainer_runtime.core.environment.gpus import slug
from trainer_runtime.core.lease.lease import OwnEnd
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import (
    Instance,
    InstanceRequest,
    InstanceState,
    Offer,
    Volume,
    Wanted,
)
from trainmaster.machines.clouds.http import Api, Provider, Refusal
from trainmaster.machines.clouds.offering import (
    GB_PER_GIB,
    dollars,
    fitting,
    gpu_name,
    in_region,
    no_capacity,
    refuse_higher_price,
)
from trainmaster.machines.clouds.replies import (
    Address,
    Figure,
    InstanceReply,
    Label,
    Name,
    Port,
    Reply,
    Rows,
    Time,
    User,
    Word,
    is_safe_id,
    readable,
)
from trainmaster.machines.clouds.volumes import unsupported
from trainmaster.settings.clouds import CloudName

# Of a standard volume per GB and month; further terabytes cost less.
USD_PER_GB_H = 0.07 / 720
_VOLUMES_PAGE = ("cursor", ("nextCursor", "next_cursor", "cursor"))
# Starts an sshd that accepts PUBLIC_KEY.
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
OLDEST_CUDA = "12.8"  # the image's
# A running pod's disk: 0.10 dollars per GB and month (pods/pricing.mdx).
DISK_USD_PER_GB_H = 0.10 / 720
CLOUDS = ("secure", "community")
# A pod's own key is limited to that pod (pods/templates/environment-variables.mdx).
POD_KEY = "RUNPOD_API_KEY"
# The parameter for another page, and where a reply may have its value.
_PAGE = ("cursor", ("nextCursor", "next_cursor", "cursor"))
_OFFER_ID = re.compile(r"([a-z0-9-]+):(\d{1,3})x:(secure|community)")
_STATES: dict[str, InstanceState] = {
    "PROVISIONING": "starting",
    "STARTING": "starting",
    "RUNNING": "running",
    "EXITED": "stopped",
    "ERROR": "stopped",
}
_GONE = "TERMINATED"
# Some data center, and which one; without a region it is the provider's choice.
_ANY_REGION = "*"
# A lack of capacity has no error code, only a message with status 400.
_NO_CAPACITY = re.compile(r"capacity|no (longer )?(any )?(instance|resource|machine)|availab", re.I)


class _Prices(Reply):
    secure: Figure = None
    community: Figure = None


class _DataCenter(Reply):
    id: Word
    availability: Name = ""


class _GpuType(Reply):
    id: Label
    manufacturer: Name = ""
    memory: Figure = None
    secure: bool = False
    community: bool = False
    price: _Prices
    maxCount: Mapping[str, Any] = Field({})  # noqa: N815
    availability: Name = ""
    dataCenters: Rows = Field([])  # noqa: N815


class _Endpoint(Reply):
    host: Address = None
    port: Port = None
    username: User = None


class _Ssh(Reply):
    direct: _Endpoint | None = None


class _Pod(InstanceReply):
    name: Name = ""
    status: Name = ""
    ssh: _Ssh | None = None
    cost: Figure = None
    createdAt: Time = None  # noqa: N815


class RunPod:
    """On-demand pods: version 2 of the API has no interruptible ones."""

    name: CloudName = "runpod"

    def __init__(self, api: Api) -> None:
        self._api = api
        self.left_out = 0

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        self.left_out = 0
        offers: list[Offer] = []
        for cloud in CLOUDS:
            offers += await self._offers_of(cloud, wanted)
        return fitting(offers, wanted)

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        return await self._offer(offer_id, disk_gib, None, is_of_image=True)

    async def create(self, offer: Offer, request: InstanceRequest) -> str:
        region = request.region or offer.region
        now = await self._offer(
            offer.offer_id, request.disk_gib, region, is_of_image=request.image is None
        )
        if now is None:
            raise no_capacity(offer, "it is no longer offered")
        refuse_higher_price(now.usd_per_h, offer, request)
        try:
            reply = await self._api.call("POST", "pods", body=_body(now, request))
        except Refusal as refusal:
            if refusal.status == 400 and _NO_CAPACITY.search(refusal.message):
                raise no_capacity(offer, refusal.message) from None
            raise self._api.refused(refusal) from None
        pod = self._api.parse_instance(reply, _Pod)
        await self._end_if_more_expensive(pod, offer, request)
        return pod.id

    async def instances(self) -> Sequence[Instance]:
        rows = await self._api.listed("pods", rows="pods", page=_PAGE)
        pods = [self._api.parse_instance(row, _Pod) for row in rows]
        return [_instance(pod) for pod in pods if pod.status != _GONE]

    async def instance(self, provider_id: str) -> Instance | None:
        reply = await self._api.find("pods", provider_id)
        if reply is None:
            return None
        pod = self._api.parse_instance(reply, _Pod)
        return None if pod.status == _GONE else _instance(pod)

    async def end(self, provider_id: str) -> None:
        await self._api.end("DELETE", "pods", provider_id)

    def self_termination(self, provider_id: str) -> OwnEnd | None:
        if not is_safe_id(provider_id):
            return None
        # Whether version 2 takes a pod's own key is not documented: the pod tries by reading
        # itself. `runpodctl` of the image speaks version 1, which is gone; RunPod's own timer
        # (terminateAfter) was accepted and never acted on (runpodctl pull request 331).
        url = self._api.url("pods", provider_id)
        return OwnEnd(method="DELETE", url=url, key_variable=POD_KEY, tried_by="GET")

    def volume_store(self) -> RunPodVolumes:
        return RunPodVolumes(self._api, self._free_region)

    async def disconnect(self) -> None:
        await self._api.disconnect()

    async def _offer(
        self, offer_id: str, disk_gib: float | None, region: str | None, *, is_of_image: bool
    ) -> Offer | None:
        parts = _OFFER_ID.fullmatch(offer_id)
        if parts is None:
            return None
        wanted = Wanted(count=int(parts[2]), disk_gib=disk_gib, region=region)
        offers = await self._offers_of(parts[3], wanted, is_of_image=is_of_image)
        return next((offer for offer in offers if offer.offer_id == offer_id), None)

    async def _free_region(self, offer_id: str, region: str | None) -> str | None:
        offer = await self._offer(offer_id, None, region or _ANY_REGION, is_of_image=False)
        return None if offer is None else offer.region

    async def _offers_of(
        self, cloud: str, wanted: Wanted, *, is_of_image: bool = True
    ) -> list[Offer]:
        """`is_of_image`: with a driver for the default image, as `_body` asks for then."""
        query = {
            "include": "AVAILABILITY",
            "product": "POD",
            "count": str(wanted.count),
            "cloud": cloud.upper(),
        }
        if is_of_image:
            query["minCudaVersion"] = OLDEST_CUDA
        rows = await self._api.listed("catalog", "gpus", rows="gpus", page=_PAGE, query=query)
        kinds, unreadable = readable(rows, _GpuType)
        self.left_out += unreadable
        return list(self._of_kinds(kinds, cloud, wanted))

    def _of_kinds(self, kinds: Iterable[_GpuType], cloud: str, wanted: Wanted) -> Iterator[Offer]:
        disk_usd_per_h = _gb(wanted.disk_gib or 0) * DISK_USD_PER_GB_H
        priced_t, source = time.time(), self._api.url("catalog", "gpus")
        for kind in kinds:
            if not getattr(kind, cloud) or not _is_free(kind, cloud, wanted.count):
                continue
            region = _region(kind, wanted.region)
            if wanted.region is not None and region is None:
                continue
            price = getattr(kind.price, cloud)
            if price is None:
                self.left_out += 1
                continue
            yield Offer(
                provider=self.name,
                offer_id=f"{slug(kind.id)}:{wanted.count}x:{cloud}",
                gpu=gpu_name(kind.id, kind.memory),
                gpu_name=kind.id,
                count=wanted.count,
                usd_per_h=dollars(price * wanted.count + disk_usd_per_h),
                priced_t=priced_t,
                source=source,
                gpu_memory_gib=kind.memory,
                region=region,
            )

    async def _end_if_more_expensive(
        self, pod: _Pod, offer: Offer, request: InstanceRequest
    ) -> None:
        try:
            refuse_higher_price(pod.cost or 0.0, offer, request)
        except CloudError:
            try:
                await self.end(pod.id)
            except CloudError as error:
                problem = (
                    f"created an instance above the quote that can't be ended: {error.message}"
                )
                raise self._api.invalid(problem) from None
            raise


def _is_free(kind: _GpuType, cloud: str, count: int) -> bool:
    max_count = kind.maxCount.get(cloud)
    enough = not isinstance(max_count, int) or max_count >= count
    return kind.manufacturer in ("NVIDIA", "") and enough and kind.availability != "NONE"


def _region(kind: _GpuType, wanted: str | None) -> str | None:
    """The data center to request; None for any, or if none is free in the wanted region."""
    if wanted is None:
        return None
    centers, _ = readable(kind.dataCenters, _DataCenter)
    order = ("HIGH", "MEDIUM", "LOW")
    free = [
        center for center in centers
        if center.availability != "NONE" and (wanted == _ANY_REGION or in_region(center.id, wanted))
    ]  # fmt: skip
    free.sort(
        key=lambda data_center: (
            order.index(data_center.availability) if data_center.availability in order else 3
        )
    )
    return free[0].id if free else None


def _body(now: Offer, request: InstanceRequest) -> dict[str, Any]:
    """The create request. PUBLIC_KEY allows the login; the account's keys are not used."""
    cloud = now.offer_id.rpartition(":")[2].upper()
    gpu: dict[str, Any] = {"id": now.gpu_name, "count": now.count}
    if request.image is None:
        gpu["minCudaVersion"] = OLDEST_CUDA
    body: dict[str, Any] = {
        "name": request.tag,
        "image": request.image or IMAGE,
        "cloud": cloud,
        "gpu": gpu,
        "disk": math.ceil(_gb(request.disk_gib)),
        "ports": ["22/tcp"],
        "env": {**request.environment, "PUBLIC_KEY": request.public_key.strip()},
        "startSsh": True,
    }
    if request.volume_id is not None:
        body["mounts"] = {"network": {"volumeId": request.volume_id, "path": RunPodVolumes.mount}}
    return {**body, "dataCenterIds": [now.region]} if now.region else body


def _instance(pod: _Pod) -> Instance:
    direct = pod.ssh.direct if pod.ssh else None
    is_reachable = direct is not None and direct.host is not None and direct.port is not None
    return Instance(
        provider="runpod",
        provider_id=pod.id,
        tag=pod.name,
        state=_STATES.get(pod.status, "starting"),
        address=direct.host if direct and is_reachable else None,
        port=direct.port if direct and is_reachable else None,
        user=(direct.username if direct else None) or "root",
        usd_per_h=pod.cost,
        created_t=pod.createdAt,
    )


def _gb(gib: float) -> float:
    return gib * GB_PER_GIB


PROVIDER = Provider(
    RunPod,
    base_url="https://api.runpod.io/v2",
    key_page="https://www.console.runpod.io/user/settings",
)


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
        rows = await self._api.listed("network-volumes", rows="networkVolumes", page=_VOLUMES_PAGE)
        listed = [self._api.parse_instance(row, _Volume) for row in rows]
        sizes = [row.size or 0.0 for row in listed]
        return [
            Volume(row.id, row.name, size, dollars(size * USD_PER_GB_H), row.dataCenter)
            for row, size in zip(listed, sizes, strict=True)
        ]

    async def end(self, provider_id: str) -> None:
        await self._api.end("DELETE", "network-volumes", provider_id)
