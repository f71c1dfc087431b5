"""Stand-in for Vast's API; its instances run `onstart`, as Vast's do."""

from __future__ import annotations

import itertools
import os
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from support.backends.ssh_hosts import Sshd
from support.providers.described import description
from support.providers.instances import RentableInstance
from support.providers.site import Answer, Asked, Site

_MONTH_H = 30 * 24
_DEFAULT_DISK_GB = 8


@dataclass(frozen=True)
class _Machine:
    ask: int
    gpu: str
    memory_mib: int
    count: int
    usd_per_h: float
    least_bid: float
    place: str
    disk_gb: float = 800.0
    storage_usd_per_gb_month: float = 0.15


_MACHINES = (
    _Machine(4001, "H100 SXM", 81559, 1, 2.40, 1.10, "California, US"),
    _Machine(4002, "H100 SXM", 81559, 1, 2.05, 0.90, "Washington, US"),
    _Machine(4003, "H100 SXM", 81559, 8, 18.80, 9.00, "Iceland, IS"),
    _Machine(4004, "RTX 4090", 24564, 1, 0.35, 0.12, "Norway, NO"),
    _Machine(4005, "H100 PCIE", 81559, 1, 1.90, 0.80, "Quebec, CA", disk_gb=20.0),
)


class VastSite(Site):
    PREFIX = "/api"
    ROUTES = (
        ("POST", "/v0/bundles/", "offers", "_offers"),
        ("PUT", "/v0/asks/([^/]+)/", "create", "_create"),
        ("GET", "/v1/instances/", "list", "_list"),
        ("GET", "/v0/instances/([^/]+)/", "instance", "_show"),
        ("DELETE", "/v0/instances/([^/]+)/", "end", "_end"),
    )

    def __init__(self, has_sshd: bool = True) -> None:
        self._numbers = itertools.count(70001)
        self.page = 25
        self.env_form = "object"
        super().__init__(description("vast_openapi.yaml", self.PREFIX), has_sshd)

    def problem(self, status: int, message: str) -> Answer:
        error = {404: "no_such_ask", 410: "no_such_ask"}.get(status, "invalid_args")
        return Answer(status, {"success": False, "error": error, "msg": message})

    def _offers(self, asked: Asked) -> Answer:
        query = asked.body
        disk_gb = query.get("allocated_storage", _DEFAULT_DISK_GB)
        is_bid = query.get("type", "ondemand") == "bid"
        found = [self._ask(machine, disk_gb, is_bid) for machine in _MACHINES]
        found = [ask for ask in found if _meets(ask, query)]
        found.sort(key=lambda ask: ask["dph_total"])
        return Answer(200, {"offers": found[: query.get("limit", 64)]})

    def _ask(self, machine: _Machine, disk_gb: float, is_bid: bool) -> dict[str, Any]:
        base = (machine.least_bid if is_bid else machine.usd_per_h) * self.modes.price_factor
        return {
            "id": machine.ask,
            "ask_contract_id": machine.ask,
            "gpu_name": machine.gpu,
            "gpu_ram": machine.memory_mib,
            "gpu_arch": "nvidia",
            "gpu_frac": 0.5,
            "num_gpus": machine.count,
            "cpu_cores_effective": 24.0,
            "cpu_ram": 515000,
            "disk_space": machine.disk_gb,
            "direct_port_count": 12,
            "geolocation": machine.place,
            "verified": True,
            "rentable": True,
            "rented": False,
            "is_bid": is_bid,
            "min_bid": machine.least_bid * self.modes.price_factor,
            "dph_base": base,
            "dph_total": base + disk_gb * machine.storage_usd_per_gb_month / _MONTH_H,
        }

    def _create(self, asked: Asked) -> Answer:
        machine = next((one for one in _MACHINES if str(one.ask) == asked.ids[0]), None)
        if machine is None or self.modes.no_capacity:
            number = asked.ids[0]
            return self.problem(410, f"no_such_ask Instance type {number} is no longer available.")
        env = asked.body.get("env", {})
        if env and isinstance(env, str) != (self.env_form == "string"):
            return self.problem(400, f"env must be a {self.env_form}")
        bid = asked.body.get("price")
        base = machine.usd_per_h * self.modes.price_factor
        if bid is not None and bid < machine.least_bid * self.modes.price_factor:
            refused = {"success": False, "error": "invalid_price", "msg": "bid is too low"}
            return Answer(400, refused)
        storage = asked.body["disk"] * machine.storage_usd_per_gb_month / _MONTH_H
        provider_id, own_key = str(next(self._numbers)), f"instance-key-{secrets.token_hex(12)}"
        self.instances[provider_id] = RentableInstance(
            provider_id=provider_id,
            name=asked.body.get("label", ""),
            usd_per_h=((bid or base) + storage) * self.modes.cost_factor,
            modes=self.modes,
            authorize=_Onstart(asked.body.get("onstart", "")),
            body={**asked.body, "gpu": machine.gpu, "count": machine.count},
            environment={
                **(_variables(env) if isinstance(env, str) else env),
                "CONTAINER_ID": provider_id,
                "CONTAINER_API_KEY": own_key,
            },
            own_key=own_key,
        )
        return Answer(200, {"success": True, "new_contract": int(provider_id)})

    def _list(self, asked: Asked) -> Answer:
        listed = [instance for instance in self.instances.values() if instance.is_listed()]
        begin = int(asked.query.get("after_token", "0"))
        end = begin + min(self.page, int(asked.query.get("limit", "25")))
        rows = [self._instance(instance, direct=True) for instance in listed[begin:end]]
        answer = {
            "success": True,
            "instances_found": len(rows),
            "total_instances": len(listed),
            "next_token": str(end) if end < len(listed) else None,
            "instances": rows,
        }
        return Answer(200, answer)

    def _show(self, asked: Asked) -> Answer:
        instance = self.instances.get(asked.ids[0])
        is_there = instance is not None and instance.is_listed()
        return Answer(200, {"instances": self._instance(instance) if instance and is_there else {}})

    def _end(self, asked: Asked) -> Answer:
        instance = self.instances.get(asked.ids[0])
        if instance is None or instance.ended:
            return Answer(404, {"success": False, "error": "not_found", "msg": "no such instance"})
        instance.ends_soon()
        return Answer(200, {"success": True, "msg": "destroyed"}, afterwards=instance.end)

    def _instance(self, instance: RentableInstance, direct: bool = False) -> dict[str, Any]:
        """`direct`: with the port mapping, which only lists contain."""
        booted = instance.poll()
        row: dict[str, Any] = {
            "id": int(instance.provider_id),
            "label": instance.name,
            "actual_status": "running" if booted else "loading",
            "intended_status": "running",
            "cur_state": "unloaded" if instance.ended else "running",
            "gpu_name": instance.body["gpu"],
            "num_gpus": instance.body["count"],
            "dph_total": instance.usd_per_h,
            "start_date": instance.created_t,
            "is_bid": "price" in instance.body,
            "env": "" if self.env_form == "string" else {},
        }
        if booted:
            row |= {"ssh_host": instance.address, "ssh_port": instance.port}
        if booted and direct:
            published = [{"HostIp": "0.0.0.0", "HostPort": str(instance.port)}]
            row |= {"public_ipaddr": instance.address, "ports": {"22/tcp": published}}
        return row


def _variables(options: str) -> dict[str, str]:
    """Of Docker's options: `-e NAME=value`."""
    words = shlex.split(options)
    return dict(word.split("=", 1) for flag, word in pairwise(words) if flag == "-e")


class _Onstart:
    """Runs a request's script in the instance's home before its sshd starts."""

    def __init__(self, script: str) -> None:
        self._script = script

    def __call__(self, sshd: Sshd) -> None:
        environment = {"HOME": str(sshd.home), "PATH": os.environ["PATH"]}
        subprocess.run(["sh", "-c", self._script], check=True, env=environment)


def _meets(ask: dict[str, Any], query: dict[str, Any]) -> bool:
    return all(_holds(ask[name], wanted) for name, wanted in _conditions(query))


def _conditions(query: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, wanted) for name, wanted in query.items() if isinstance(wanted, dict))


def _holds(value: Any, wanted: dict[str, Any]) -> bool:
    compared = {"eq": value.__eq__, "gte": value.__ge__, "lte": value.__le__}
    return all(compared[operator](bound) is True for operator, bound in wanted.items())
