"""Lambda's instances: whole virtual machines, each with its own disk.

Source: version 1.10.0 of its API's description, as of 2026-08-22 (github.com/api-evangelist/
lambda-labs, openapi/).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from trainer_runtime.core.lease.lease import OwnEnd
from trainmaster.machines.clouds.cloud import (
    Instance,
    InstanceRequest,
    InstanceState,
    Offer,
    VolumeStore,
    Wanted,
)
from trainmaster.machines.clouds.http import Api, Pace, Provider, Refusal
from trainmaster.machines.clouds.offering import (
    fitting,
    gpu_name,
    in_region,
    no_capacity,
    refuse_higher_price,
)
from trainmaster.machines.clouds.replies import (
    Address,
    Count,
    Figure,
    InstanceReply,
    Name,
    Reply,
    Rows,
    Word,
    readable,
)
from trainmaster.machines.clouds.volumes import unsupported
from trainmaster.settings.clouds import CloudName

USER = "ubuntu"
SSH_PORT = 22
TAG_KEY = "trainmaster"
NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
_MEMORY = re.compile(r"\((\d{1,4}) GB")
_GONE = "terminated"
_STATES: dict[str, InstanceState] = {
    "booting": "starting",
    "active": "running",
    "unhealthy": "running",  # SSH shows whether it can be used
    "terminating": "ending",
    "preempted": "stopped",
}


class _Region(Reply):
    name: Word


class _Specs(Reply):
    vcpus: Figure = None
    memory_gib: Figure = None
    storage_gib: Figure = None
    gpus: Count


class _Type(Reply):
    name: Word
    gpu_description: Name = ""
    price_cents_per_hour: Figure = None
    specs: _Specs


class _Offered(Reply):
    instance_type: _Type
    regions_with_capacity_available: Rows = Field([])


class _Priced(Reply):
    price_cents_per_hour: Figure = None


class _LambdaInstance(InstanceReply):
    name: Name = ""
    status: Name = ""
    ip: Address = None
    instance_type: _Priced = _Priced()


class _SshKey(Reply):
    name: str
    public_key: Name = ""


class Lambda:
    """Lambda has one price per type; an offer names a region with capacity."""

    name: CloudName = "lambda"

    def __init__(self, api: Api) -> None:
        self._api = api
        self.left_out = 0

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        self.left_out = 0
        return fitting(await self._offers(wanted.region), wanted)

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        return await self._offer(offer_id, None)

    async def create(self, offer: Offer, request: InstanceRequest) -> str:
        now = await self._offer(offer.offer_id, request.region or offer.region)
        if now is None:
            raise no_capacity(offer, "it is no longer offered")
        refuse_higher_price(now.usd_per_h, offer, request)
        key_name = await self._key_name(request.public_key)
        body = _body(now, key_name, request)
        try:
            reply = await self._api.call("POST", "instance-operations", "launch", body=body)
        except Refusal as refusal:
            if refusal.code == NO_CAPACITY:
                raise no_capacity(offer, refusal.message) from None
            raise self._api.refused(refusal) from None
        data = self._api.as_object(reply).get("data")
        created = data.get("instance_ids") if isinstance(data, dict) else None
        if not isinstance(created, list) or len(created) != 1 or not isinstance(created[0], str):
            raise self._api.invalid("created an instance without returning its id")
        return created[0]

    async def instances(self) -> Sequence[Instance]:
        instances = [
            self._api.parse_instance(row, _LambdaInstance) for row in await self._list("instances")
        ]
        return [_instance(instance) for instance in instances if instance.status != _GONE]

    async def instance(self, provider_id: str) -> Instance | None:
        reply = await self._api.find("instances", provider_id)
        if reply is None:
            return None
        instance = self._api.parse_instance(reply.get("data"), _LambdaInstance)
        return None if instance.status == _GONE else _instance(instance)

    async def end(self, provider_id: str) -> None:
        body = {"instance_ids": [provider_id]}
        # Idempotent although it is a POST: ending an ended instance changes nothing.
        await self._api.end("POST", "instance-operations", "terminate", body=body, retried=True)

    def self_termination(self, provider_id: str) -> OwnEnd | None:
        """None: an instance has no key, and is still billed after it powers itself off."""
        return None

    def volume_store(self) -> VolumeStore:
        raise unsupported(
            self.name, "its file systems are billed by what is stored, so no quote could hold"
        )

    async def disconnect(self) -> None:
        await self._api.disconnect()

    async def _offers(self, region: str | None) -> list[Offer]:
        data = (await self._api.read("instance-types")).get("data")
        if not isinstance(data, dict):
            raise self._api.invalid("returned no list of instance types")
        offered, unreadable = readable(list(data.values()), _Offered)
        self.left_out += unreadable
        return list(self._of_types(offered, region))

    def _of_types(self, offered: Sequence[_Offered], region: str | None) -> Iterator[Offer]:
        priced_t, source = time.time(), self._api.url("instance-types")
        for offered_type in offered:
            kind, specs = offered_type.instance_type, offered_type.instance_type.specs
            regions, _ = readable(offered_type.regions_with_capacity_available, _Region)
            free = sorted(free.name for free in regions if in_region(free.name, region))
            if specs.gpus < 1 or not free:
                continue
            if kind.price_cents_per_hour is None:
                self.left_out += 1
                continue
            memory = _MEMORY.search(kind.gpu_description)
            memory_gib = float(memory[1]) if memory else None
            yield Offer(
                provider=self.name,
                offer_id=kind.name,
                gpu=gpu_name(kind.gpu_description, memory_gib),
                gpu_name=kind.gpu_description,
                count=specs.gpus,
                usd_per_h=kind.price_cents_per_hour / 100,
                priced_t=priced_t,
                source=source,
                gpu_memory_gib=memory_gib,
                cpu_cores=specs.vcpus,
                memory_gib=specs.memory_gib,
                disk_gib=specs.storage_gib,
                region=free[0],
            )

    async def _offer(self, offer_id: str, region: str | None) -> Offer | None:
        offers = await self._offers(region)
        return next((offer for offer in offers if offer.offer_id == offer_id), None)

    async def _key_name(self, public_key: str) -> str:
        """The name of a public key in the account; the key is added if it is missing."""
        words = public_key.split()[:2]
        key_name = await self._known_key(words)
        if key_name is not None:
            return key_name
        digest = hashlib.sha256(" ".join(words).encode()).hexdigest()
        body = {"name": f"trainmaster-{digest[:12]}", "public_key": " ".join(words)}
        try:
            await self._api.call("POST", "ssh-keys", body=body)
        except Refusal as refusal:
            # Another process may have added it first.
            if await self._known_key(words) is None:
                raise self._api.refused(refusal) from None
        return body["name"]

    async def _known_key(self, words: Sequence[str]) -> str | None:
        keys, _ = readable(await self._list("ssh-keys"), _SshKey)
        return next((key.name for key in keys if key.public_key.split()[:2] == words), None)

    async def _list(self, *segments: str) -> list[Any]:
        rows = (await self._api.read(*segments)).get("data")
        if not isinstance(rows, list):
            raise self._api.invalid(f"returned no list of {segments[-1]}")
        return rows


def _body(now: Offer, key_name: str, request: InstanceRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "region_name": now.region,
        "instance_type_name": now.offer_id,
        "ssh_key_names": [key_name],
        "name": request.tag,
        "tags": [{"key": TAG_KEY, "value": request.tag}],
    }
    if request.image is not None:
        body["image"] = {"family": request.image}
    if request.environment:
        body["user_data"] = _cloud_config(request.environment)
    return body


def _cloud_config(environment: Mapping[str, str]) -> str:
    """A cloud-init document that sets variables for all sessions; JSON is valid YAML."""
    lines = "".join(f"{name}={json.dumps(value)}\n" for name, value in environment.items())
    file = {"path": "/etc/environment", "append": True, "content": lines}
    return "#cloud-config\n" + json.dumps({"write_files": [file]}) + "\n"


def _instance(row: _LambdaInstance) -> Instance:
    return Instance(
        provider="lambda",
        provider_id=row.id,
        tag=row.name,
        state=_STATES.get(row.status, "starting"),
        address=row.ip,
        port=SSH_PORT if row.ip else None,
        user=USER,
        usd_per_h=(row.instance_type.price_cents_per_hour or 0) / 100 or None,
    )


PROVIDER = Provider(
    Lambda,
    base_url="https://cloud.lambda.ai/api/v1",
    key_page="https://cloud.lambda.ai/api-keys",
    pace=Pace(spacing_s=1.05),  # one request a second, and a launch every 12 seconds
)
