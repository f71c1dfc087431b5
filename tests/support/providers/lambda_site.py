"""Stand-in for Lambda's API. Each instance has its own loopback address, port 22 and an ordinary
user."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from typing import Any

import pytest
from support.providers.described import description
from support.providers.instances import RentableInstance, accepting
from support.providers.site import Answer, Asked, Site

SSH_PORT = 22
_REGIONS = {"us-west-1": "California, USA", "europe-central-1": "Germany"}
# name, name of its GPUs, cents an hour, number of GPUs, regions with capacity
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
# Concurrent test processes use other addresses.
_addresses = itertools.count(os.getpid() * 131)


class LambdaSite(Site):
    PREFIX = "/api/v1"
    ROUTES = (
        ("GET", "/instance-types", "offers", "_offers"),
        ("GET", "/ssh-keys", "keys", "_keys"),
        ("POST", "/ssh-keys", "keys", "_add_key"),
        ("POST", "/instance-operations/launch", "create", "_create"),
        ("GET", "/instances", "list", "_list"),
        ("GET", "/instances/([^/]+)", "instance", "_show"),
        ("POST", "/instance-operations/terminate", "end", "_end"),
    )

    def __init__(self, has_sshd: bool = True) -> None:
        if has_sshd and not _is_free(_next_address()):
            pytest.skip("port 22 of every address is taken by an sshd of this machine")
        self.keys: list[dict[str, str]] = [
            {"id": "1", "name": "laptop", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA me"}
        ]
        super().__init__(description("lambda_openapi.json", self.PREFIX), has_sshd)

    def problem(self, status: int, message: str) -> Answer:
        code = _CODES.get(status, "global/invalid-parameters")
        error = {"code": code, "message": message, "suggestion": "Change the request."}
        return Answer(status, {"error": error})

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
            return self.problem(404, "unknown type or key")
        if self.modes.no_capacity or body["region_name"] not in row[4]:
            code = "instance-operations/launch/insufficient-capacity"
            message = "Not enough capacity to fulfill launch request."
            return Answer(400, {"error": {"code": code, "message": message}})
        cents = row[2] * self.modes.price_factor * self.modes.cost_factor
        provider_id = secrets.token_hex(16)
        self.instances[provider_id] = RentableInstance(
            provider_id=provider_id,
            name=body.get("name", ""),
            usd_per_h=cents / 100,
            modes=self.modes,
            authorize=accepting(key["public_key"]),
            body={**body, "row": row},
            user="ubuntu",
            address=_next_address(),
            port=SSH_PORT,
        )
        return Answer(200, {"data": {"instance_ids": [provider_id]}})

    def _list(self, asked: Asked) -> Answer:
        listed = [instance for instance in self.instances.values() if instance.is_listed()]
        return Answer(200, {"data": [self._instance(instance) for instance in listed]})

    def _show(self, asked: Asked) -> Answer:
        instance = self.instances.get(asked.ids[0])
        if instance is None or not instance.is_listed():
            return self.problem(404, "Specified instance does not exist.")
        return Answer(200, {"data": self._instance(instance)})

    def _end(self, asked: Asked) -> Answer:
        instances = [self.instances.get(provider_id) for provider_id in asked.body["instance_ids"]]
        found = [instance for instance in instances if instance is not None and not instance.ended]
        if not found:
            return self.problem(404, "Specified instance does not exist.")
        ended = [self._instance(instance) for instance in found]
        for instance in found:
            instance.ends_soon()

        def end_all() -> None:
            for instance in found:
                instance.end()

        return Answer(200, {"data": {"terminated_instances": ended}}, afterwards=end_all)

    def _instance(self, instance: RentableInstance) -> dict[str, Any]:
        booted = instance.poll()
        name, gpu, _, count, _ = instance.body["row"]
        row = {
            "id": instance.provider_id,
            "name": instance.name,
            "status": "terminating" if instance.ended else "active" if booted else "booting",
            "ssh_key_names": instance.body["ssh_key_names"],
            "file_system_names": [],
            "region": _region(instance.body["region_name"]),
            "instance_type": {
                **self._type(name, gpu, 0, count),
                "price_cents_per_hour": round(instance.usd_per_h * 100),
            },
            "actions": {action: {"available": True} for action in _ACTIONS},
            "tags": instance.body.get("tags", []),
        }
        return {**row, "ip": instance.address} if booted else row


def _region(name: str) -> dict[str, str]:
    return {"name": name, "description": _REGIONS[name]}


def _next_address() -> str:
    """A loopback address that no other test process uses."""
    number = next(_addresses) % (1 << 20)
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{1 + number % 250}"


def _is_free(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, SSH_PORT))
        except OSError:
            return False
    return True
