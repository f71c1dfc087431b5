"""Lambda's API as far as it is used. Its boxes are reached at addresses of their own, at port 22,
by an ordinary user."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from typing import Any

import pytest
from support.providers.boxes import RentableBox, knowing
from support.providers.described import description
from support.providers.site import Answer, Asked, Site

SSH_PORT = 22
_REGIONS = {"us-west-1": "California, USA", "europe-central-1": "Germany"}
# name, what its GPUs are called, cents an hour, GPUs, regions with some left
_TYPES: tuple[tuple[str, str, int, int, tuple[str, ...]], ...] = (
    ("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 429, 1, ("us-west-1", "europe-central-1")),
    ("gpu_1x_h100_pcie", "H100 (80 GB PCIe)", 329, 1, ("us-west-1",)),
    ("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 3192, 8, ("us-west-1",)),
    ("gpu_8x_a100", "A100 (40 GB SXM4)", 1592, 8, ()),
    ("gpu_1x_a10", "A10 (24 GB PCIe)", 129, 1, ("europe-central-1",)),
    ("cpu_4x_general", "N/A", 20, 0, ("us-west-1",)),
)
_CODES = {
    401: "global/invalid-api-key",
    404: "global/object-does-not-exist",
    429: "global/too-many-requests",
}
_ACTIONS = ("migrate", "rebuild", "restart", "cold_reboot", "terminate")
# Other processes that test at the same time have other addresses.
_addresses = itertools.count(os.getpid() * 131)


class LambdaSite(Site):
    PREFIX = "/api/v1"
    ROUTES = (
        ("GET", "/instance-types", "offers", "_offers"),
        ("GET", "/ssh-keys", "keys", "_keys"),
        ("POST", "/ssh-keys", "keys", "_add_key"),
        ("POST", "/instance-operations/launch", "create", "_create"),
        ("GET", "/instances", "list", "_list"),
        ("GET", "/instances/([^/]+)", "box", "_box"),
        ("POST", "/instance-operations/terminate", "end", "_end"),
    )

    def __init__(self, has_sshd: bool = True) -> None:
        if has_sshd and not _is_free(_next_address()):
            pytest.skip("port 22 of every address is taken by an sshd of this machine")
        self.keys: list[dict[str, str]] = [
            {"id": "1", "name": "laptop", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me"}
        ]
        super().__init__(description("lambda_openapi.json", self.PREFIX), has_sshd)

    def problem(self, status: int, words: str) -> Answer:
        code = _CODES.get(status, "global/invalid-parameters")
        told = {"code": code, "message": words, "suggestion": "Ask for something else."}
        return Answer(status, {"error": told})

    def _offers(self, asked: Asked) -> Answer:
        return Answer(200, {"data": {row[0]: self._offered(*row) for row in _TYPES}})

    def _offered(
        self, name: str, gpu: str, cents: int, count: int, regions: tuple[str, ...]
    ) -> dict[str, Any]:
        return {
            "instance_type": self._type(name, gpu, cents, count),
            "regions_with_capacity_available": [_region(region) for region in regions],
        }

    def _type(self, name: str, gpu: str, cents: int, count: int) -> dict[str, Any]:
        specs = {"vcpus": 26 * max(1, count), "memory_gib": 225, "storage_gib": 2816, "gpus": count}
        return {
            "name": name,
            "description": f"{count}x {gpu}",
            "gpu_description": gpu,
            "price_cents_per_hour": round(cents * self.modes.price_factor),
            "specs": specs,
        }

    def _keys(self, asked: Asked) -> Answer:
        return Answer(200, {"data": self.keys})

    def _add_key(self, asked: Asked) -> Answer:
        key = {"id": secrets.token_hex(16), **asked.body}
        if any(known["name"] == key["name"] for known in self.keys):
            return self.problem(400, "a key of this name exists")
        self.keys.append(key)
        return Answer(200, {"data": key})

    def _create(self, asked: Asked) -> Answer:
        body = asked.body
        row = next((row for row in _TYPES if row[0] == body["instance_type_name"]), None)
        key = next((key for key in self.keys if [key["name"]] == body["ssh_key_names"]), None)
        if row is None or key is None:
            return self.problem(404, "there is no such type or key")
        if self.modes.no_capacity or body["region_name"] not in row[4]:
            code = "instance-operations/launch/insufficient-capacity"
            words = "Not enough capacity to fulfill launch request."
            return Answer(400, {"error": {"code": code, "message": words}})
        cents = row[2] * self.modes.price_factor * self.modes.cost_factor
        provider_id = secrets.token_hex(16)
        self.boxes[provider_id] = RentableBox(
            provider_id=provider_id,
            name=body.get("name", ""),
            usd_per_h=cents / 100,
            modes=self.modes,
            let_in=knowing(key["public_key"]),
            body={**body, "row": row},
            user="ubuntu",
            address=_next_address(),
            port=SSH_PORT,
        )
        return Answer(200, {"data": {"instance_ids": [provider_id]}})

    def _list(self, asked: Asked) -> Answer:
        listed = [box for box in self.boxes.values() if box.is_listed()]
        return Answer(200, {"data": [self._instance(box) for box in listed]})

    def _box(self, asked: Asked) -> Answer:
        box = self.boxes.get(asked.ids[0])
        if box is None or not box.is_listed():
            return self.problem(404, "Specified instance does not exist.")
        return Answer(200, {"data": self._instance(box)})

    def _end(self, asked: Asked) -> Answer:
        boxes = [self.boxes.get(provider_id) for provider_id in asked.body["instance_ids"]]
        found = [box for box in boxes if box is not None and not box.ended]
        if not found:
            return self.problem(404, "Specified instance does not exist.")
        ended = [self._instance(box) for box in found]
        for box in found:
            box.ends_soon()

        def end_all() -> None:
            for box in found:
                box.end()

        return Answer(200, {"data": {"terminated_instances": ended}}, afterwards=end_all)

    def _instance(self, box: RentableBox) -> dict[str, Any]:
        booted = box.look()
        name, gpu, _, count, _ = box.body["row"]
        told = {
            "id": box.provider_id,
            "name": box.name,
            "status": "terminating" if box.ended else "active" if booted else "booting",
            "ssh_key_names": box.body["ssh_key_names"],
            "file_system_names": [],
            "region": _region(box.body["region_name"]),
            "instance_type": {
                **self._type(name, gpu, 0, count),
                "price_cents_per_hour": round(box.usd_per_h * 100),
            },
            "actions": {action: {"available": True} for action in _ACTIONS},
            "tags": box.body.get("tags", []),
        }
        return {**told, "ip": box.address} if booted else told


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": _REGIONS[name]}


def _next_address() -> str:
    """One of the loopback addresses that nobody else here has."""
    number = next(_addresses) % (1 << 20)
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{1 + number % 250}"


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, SSH_PORT))
        except OSError:
            return False
    return True
