"""Vast's instances: other people's machines at market prices.

Sources: api-reference/openapi.yaml, api-reference/*.mdx and guides/instances/docker-environment.mdx
of github.com/vast-ai/docs, 2026-08-07.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.lease.lease import OwnEnd
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds.cloud import (
    Instance,
    InstanceRequest,
    InstanceState,
    Offer,
    VolumeStore,
    Wanted,
)
from trainmaster.machines.clouds.http import Api, Provider, Refusal
from trainmaster.machines.clouds.offering import (
    GB_PER_GIB,
    MIB_PER_GIB,
    dollars,
    fitting,
    gpu_name,
    no_capacity,
    refuse_higher_price,
)
from trainmaster.machines.clouds.replies import (
    Address,
    Count,
    Figure,
    InstanceReply,
    Name,
    Port,
    Reply,
    Time,
    readable,
)
from trainmaster.machines.clouds.volumes import unsupported
from trainmaster.settings.clouds import CloudName

IMAGE = "vastai/base-image:@vastai-automatic-tag"
# An instance's own key is limited to that instance (api-reference/hello-world.mdx).
INSTANCE_KEY = "CONTAINER_API_KEY"
# Runs when the instance boots, with the public key as argument, so that no key of the account is
# needed and every created instance accepts this one.
ADD_KEY = (
    "umask 077; mkdir -p ~/.ssh && "
    "touch ~/.ssh/authorized_keys && printf '\\n%s\\n' \"$1\" >> ~/.ssh/authorized_keys"
)
_OFFER_ID = re.compile(r"(\d{1,18})(:bid)?")
_MAX_OFFERS = 500
_PAGE = 25  # the most that a page of instances holds
_STATES: dict[str, InstanceState] = {
    "running": "running",
    "stopped": "stopped",
    "exited": "stopped",
}
_TAKEN = ("no_such_ask",)
_BID_TOO_LOW = "invalid_price"
_OF_ENV = re.compile(r"\benv\b")


class _Ask(Reply):
    id: Count
    gpu_name: Name = ""
    gpu_ram: Figure = None
    num_gpus: Count
    dph_total: Figure = None
    dph_base: Figure = None
    min_bid: Figure = None
    cpu_cores_effective: Figure = None
    cpu_ram: Figure = None
    gpu_frac: Figure = None
    disk_space: Figure = None
    geolocation: Name = ""


class _Published(Reply):
    HostPort: Port = None


def _ports(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


class _VastInstance(InstanceReply):
    label: Name = ""
    actual_status: Name = ""
    intended_status: Name = ""
    public_ipaddr: Address = None
    ports: Annotated[Mapping[str, Any], BeforeValidator(_ports)] = Field({})
    ssh_host: Address = None
    ssh_port: Port = None
    dph_total: Figure = None
    start_date: Time = None


class Vast:
    """Offers of verified machines with a direct address. Vast also charges for traffic."""

    name: CloudName = "vast"

    def __init__(self, api: Api) -> None:
        self._api = api
        self.left_out = 0

    async def offers(self, wanted: Wanted) -> Sequence[Offer]:
        self.left_out = 0
        asks = await self._asks(_query(wanted), wanted.interruptible)
        return fitting((offer for offer, _ in asks), wanted)

    async def offer(self, offer_id: str, disk_gib: float | None = None) -> Offer | None:
        ask = await self._ask(offer_id, disk_gib)
        return ask[0] if ask else None

    async def create(self, offer: Offer, request: InstanceRequest) -> str:
        ask = await self._ask(offer.offer_id, request.disk_gib)
        if ask is None:
            raise no_capacity(offer, "it is no longer offered")
        now, without_disk = ask
        refuse_higher_price(now.usd_per_h, offer, request)
        body = _body(now, without_disk, request)
        ask_id = offer.offer_id.partition(":")[0]
        try:
            reply = await self._put_ask(ask_id, body)
        except Refusal as refusal:
            raise self._not_created(refusal, offer, request) from None
        created = self._api.as_object(reply).get("new_contract")
        if isinstance(created, bool) or not isinstance(created, int):
            raise self._api.invalid("created an instance without returning its id")
        return str(created)

    async def _put_ask(self, ask_id: str, body: dict[str, Any]) -> Any:
        """`env` as an object, as the guide has it, or a string, as the schema does: a request that
        was refused for it has created nothing.

        Raises:
            Refusal, CloudError: as `Api.call`.
        """
        try:
            return await self._create_of(ask_id, body)
        except Refusal as refusal:
            if "env" not in body or refusal.status >= 404 or not _OF_ENV.search(refusal.message):
                raise
        words = [word for name, text in body["env"].items() for word in ("-e", f"{name}={text}")]
        return await self._create_of(ask_id, {**body, "env": shlex.join(words)})

    async def _create_of(self, ask_id: str, body: dict[str, Any]) -> Any:
        reply = await self._api.call("PUT", "v0", "asks", ask_id, body=body)
        self._refuse_unsuccessful(reply)
        return reply

    async def instances(self) -> Sequence[Instance]:
        rows = await self._api.listed(
            "v1",
            "instances",
            rows="instances",
            page=("after_token", ("next_token",)),
            query={"limit": str(_PAGE)},
        )
        return [_instance(self._api.parse_instance(row, _VastInstance)) for row in rows]

    async def instance(self, provider_id: str) -> Instance | None:
        reply = await self._api.find("v0", "instances", provider_id)
        if reply is None:
            return None
        if "instances" not in reply:
            raise self._api.invalid("did not state whether the instance exists")
        row = reply["instances"]
        return _instance(self._api.parse_instance(row, _VastInstance)) if row else None

    async def end(self, provider_id: str) -> None:
        try:
            reply = await self._api.call("DELETE", "v0", "instances", provider_id)
            self._refuse_unsuccessful(reply)
        except Refusal as refusal:
            if refusal.status != 404:
                raise self._api.refused(refusal) from None

    def self_termination(self, provider_id: str) -> OwnEnd | None:
        if not (provider_id.isascii() and provider_id.isdigit()):
            return None
        url = self._api.url("v0", "instances", provider_id)
        return OwnEnd(method="DELETE", url=url, key_variable=INSTANCE_KEY)

    def volume_store(self) -> VolumeStore:
        raise unsupported(
            self.name, "its volumes lie on one machine, and no other offer could mount them"
        )

    async def disconnect(self) -> None:
        await self._api.disconnect()

    async def _ask(self, offer_id: str, disk_gib: float | None) -> tuple[Offer, float] | None:
        parts = _OFFER_ID.fullmatch(offer_id)
        if parts is None:
            return None
        query = {**_of_disk(disk_gib), "id": {"eq": int(parts[1])}}
        asks = await self._asks(query, parts[2] is not None)
        return next((ask for ask in asks if ask[0].offer_id == offer_id), None)

    async def _asks(
        self, query: Mapping[str, Any], interruptible: bool
    ) -> list[tuple[Offer, float]]:
        """Offers, each with its price without the disk."""
        body = {
            "verified": {"eq": True},
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "direct_port_count": {"gte": 1},
            "gpu_arch": {"eq": "nvidia"},
            "order": [["dph_total", "asc"], ["id", "asc"]],
            "limit": _MAX_OFFERS,
            **({"type": "bid"} if interruptible else {}),
            **query,
        }
        # A search: it can be retried although it is a POST.
        reply = await self._api.request("POST", "v0", "bundles", body=body, retried=True)
        rows = self._api.as_object(reply).get("offers")
        if not isinstance(rows, list):
            raise self._api.invalid("returned no list of offers")
        asks, unreadable = readable(rows, _Ask)
        self.left_out += unreadable
        priced_t, source = time.time(), self._api.url("v0", "bundles")
        offers = []
        for ask in asks:
            without_disk = ask.min_bid if interruptible else ask.dph_base
            if ask.dph_total is None or without_disk is None or ask.num_gpus < 1:
                self.left_out += 1
                continue
            offers.append((_offer(ask, interruptible, priced_t, source), without_disk))
        return offers

    def _refuse_unsuccessful(self, reply: Any) -> None:
        """Vast sends some refusals with a success status."""
        if isinstance(reply, dict) and reply.get("success") is False:
            message, code = self._api.problem_of(json.dumps(reply).encode())
            raise Refusal(200, message, code)

    def _not_created(self, refusal: Refusal, offer: Offer, request: InstanceRequest) -> CloudError:
        if refusal.status in (404, 410) or refusal.code in _TAKEN:
            return no_capacity(offer, refusal.message or "it is taken")
        if refusal.code == _BID_TOO_LOW:
            return CloudError(
                "PRICE_ABOVE_QUOTE",
                f"{offer.name} is no longer available for {usd_text(request.max_usd_per_h)}/h: "
                f"{refusal.message}.",
                f"List the offers again ({command('offers')}), and take one at its current price.",
            )
        return self._api.refused(refusal)


def _query(wanted: Wanted) -> dict[str, Any]:
    """Narrow enough that matching offers are among the first; `fitting` filters them."""
    query: dict[str, Any] = {**_of_disk(wanted.disk_gib), "num_gpus": {"eq": wanted.count}}
    gpu = find_gpu(wanted.gpu) if wanted.gpu else None
    if gpu is not None:
        # Machines report slightly more or less memory than can be allocated.
        memory_mib = gpu.memory_gib * MIB_PER_GIB
        query["gpu_ram"] = {"gte": round(memory_mib * 0.9), "lte": round(memory_mib * 1.25)}
    if wanted.max_usd_h is not None:
        query["dph_total"] = {"lte": wanted.max_usd_h}
    return query


def _of_disk(disk_gib: float | None) -> dict[str, Any]:
    if disk_gib is None:
        return {}
    size_gb = math.ceil(disk_gib * GB_PER_GIB)
    return {"allocated_storage": size_gb, "disk_space": {"gte": size_gb}}


def _offer(ask: _Ask, interruptible: bool, priced_t: float, source: str) -> Offer:
    memory_gib = ask.gpu_ram / MIB_PER_GIB if ask.gpu_ram else None
    share = min(1.0, ask.gpu_frac or 1.0)
    offer = Offer(
        provider="vast",
        offer_id=f"{ask.id}:bid" if interruptible else str(ask.id),
        gpu=gpu_name(ask.gpu_name, memory_gib),
        gpu_name=ask.gpu_name,
        count=ask.num_gpus,
        usd_per_h=dollars(ask.dph_total or 0.0),
        priced_t=priced_t,
        source=source,
        gpu_memory_gib=memory_gib and round(memory_gib, 1),
        cpu_cores=ask.cpu_cores_effective,
        region=_region(ask.geolocation),
        interruptible=interruptible,
    )
    if ask.cpu_ram:
        offer = replace(offer, memory_gib=round(ask.cpu_ram / MIB_PER_GIB * share, 1))
    if ask.disk_space:
        offer = replace(offer, disk_gib=int(ask.disk_space / GB_PER_GIB))
    return offer


def _region(geolocation: str) -> str | None:
    """`Washington, US` as `US-Washington`."""
    place, _, country = geolocation.rpartition(", ")
    return "-".join(part for part in (country, place) if part) or None


def _body(now: Offer, without_disk: float, request: InstanceRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "image": request.image or IMAGE,
        "disk": math.ceil(request.disk_gib * GB_PER_GIB),
        "label": request.tag,
        "runtype": "ssh_direct",
        "target_state": "running",
        "cancel_unavail": True,
        "onstart": shlex.join(["sh", "-c", ADD_KEY, "sh", request.public_key.strip()]),
    }
    if request.environment:
        body["env"] = dict(request.environment)
    if now.interruptible:
        # The bid is paid in full, plus the disk: bid all of the quote, so as not to be outbid.
        body["price"] = round(without_disk + max(0.0, request.max_usd_per_h - now.usd_per_h), 6)
    return body


def _instance(row: _VastInstance) -> Instance:
    address, port = row.public_ipaddr, _direct_port(row)
    if address is None or port is None:
        address, port = row.ssh_host, row.ssh_port
    is_reachable = address is not None and port is not None
    state = _STATES.get(row.actual_status, "starting")
    return Instance(
        provider="vast",
        provider_id=row.id,
        tag=row.label,
        # An outbid instance is set to stop.
        state="stopped" if row.intended_status == "stopped" else state,
        address=address if is_reachable else None,
        port=port if is_reachable else None,
        usd_per_h=row.dph_total,
        created_t=row.start_date,
    )


def _direct_port(row: _VastInstance) -> int | None:
    published = row.ports.get("22/tcp")
    ports, _ = readable(published if isinstance(published, list) else [], _Published)
    return next((port.HostPort for port in ports if port.HostPort), None)


PROVIDER = Provider(
    Vast,
    base_url="https://console.vast.ai/api",
    key_page="https://cloud.vast.ai/manage-keys/",
    path_end="/",  # as in all examples of its documentation
)
