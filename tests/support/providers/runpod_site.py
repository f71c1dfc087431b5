"""Stand-in for version 2 of RunPod's API."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from support.providers.described import description
from support.providers.instances import RentableInstance, accepting
from support.providers.site import Answer, Asked, Site

_H100, _4090, _MI300 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X OAM"
# id, memory, secure, community, maximum GPUs in one pod, data centers with stock
_STOCK: tuple[tuple[str, int, float, float, int, tuple[str, ...]], ...] = (
    (_H100, 80, 3.99, 2.69, 8, ("US-TX-3", "EU-NL-1")),
    (_4090, 24, 0.69, 0.34, 8, ("US-TX-3",)),
    ("NVIDIA A100-SXM4-80GB", 80, 1.79, 0.0, 8, ()),
    (_MI300, 192, 2.49, 0.0, 8, ("EU-RO-1",)),
)


@dataclass
class NetworkVolume:
    """`row`: as the API shows it; `folder`: what lies on it, here."""

    row: dict[str, Any]
    folder: Path


def volume_of(instance: RentableInstance) -> str | None:
    network = instance.body.get("mounts", {}).get("network", {})
    return network.get("volumeId")


class RunPodSite(Site):
    PREFIX = "/v2"
    ROUTES = (
        ("GET", "/catalog/gpus", "offers", "_offers"),
        ("POST", "/pods", "create", "_create"),
        ("GET", "/pods", "list", "_list"),
        ("GET", "/pods/([^/]+)", "instance", "_show"),
        ("DELETE", "/pods/([^/]+)", "end", "_end"),
        ("GET", "/network-volumes", "volumes", "_list_volumes"),
        ("POST", "/network-volumes", "volume", "_create_volume"),
        ("DELETE", "/network-volumes/([^/]+)", "volume", "_end_volume"),
    )

    def __init__(self, has_sshd: bool = True) -> None:
        self.page = 100
        self.volumes: dict[str, NetworkVolume] = {}
        super().__init__(description("runpod_openapi.json", self.PREFIX), has_sshd)

    def problem(self, status: int, message: str) -> Answer:
        return Answer(status, {"title": "Refused", "status": status, "detail": message})

    def _offers(self, asked: Asked) -> Answer:
        count = int(asked.query.get("count", "1"))
        return Answer(200, {"gpus": [self._gpu_type(*row, count) for row in _STOCK]})

    def _gpu_type(
        self,
        gpu: str,
        memory: int,
        secure: float,
        community: float,
        max_count: int,
        centers: tuple[str, ...],
        count: int,
    ) -> dict[str, Any]:
        is_free = bool(centers) and count <= max_count
        row: dict[str, Any] = {
            "id": gpu,
            "name": gpu,
            "pool": None,
            "manufacturer": gpu.split(maxsplit=1)[0],
            "memory": memory,
            "secure": secure > 0,
            "community": community > 0,
            "price": {
                "secure": secure * self.modes.price_factor,
                "community": community * self.modes.price_factor,
            },
            "maxCount": {"secure": max_count, "community": max_count if community else 0},
            "availability": "HIGH" if is_free else "NONE",
        }
        if is_free:
            row["dataCenters"] = [
                {"id": name, "name": name, "availability": "LOW"} for name in centers
            ]
        return row

    def _create(self, asked: Asked) -> Answer:
        body = asked.body
        if self.modes.no_capacity:
            message = (
                "There are no longer any instances available with the requested specifications."
            )
            return self.problem(400, message)
        row = next((row for row in _STOCK if row[0] == body["gpu"]["id"]), None)
        if row is None:
            return self.problem(400, f"unknown GPU {body['gpu']['id']}")
        price = row[2] if body.get("cloud", "SECURE") == "SECURE" else row[3]
        cost = price * body["gpu"].get("count", 1) * self.modes.price_factor
        mounts = dict(body.get("mounts", {}))
        volume = None
        if "network" in mounts:
            volume = self.volumes.get(mounts["network"]["volumeId"])
            if volume is None or body.get("dataCenterIds") != [volume.row["dataCenter"]]:
                return self.problem(400, "the network volume is not in this data center")
        provider_id, own_key = secrets.token_hex(7), f"pod-key-{secrets.token_hex(12)}"
        environment = {
            **body.get("env", {}),
            "RUNPOD_POD_ID": provider_id,
            "RUNPOD_API_KEY": own_key,
        }
        self.instances[provider_id] = RentableInstance(
            provider_id=provider_id,
            name=body["name"],
            authorize=accepting(environment.get("PUBLIC_KEY", "")),
            usd_per_h=cost * self.modes.cost_factor,
            modes=self.modes,
            environment=environment,
            own_key=own_key,
            body=body,
            mounts={mounts["network"]["path"]: volume.folder} if volume else {},
        )
        return Answer(201, self._pod(self.instances[provider_id], booted=False))

    def close(self) -> None:
        super().close()
        for volume in self.volumes.values():
            shutil.rmtree(volume.folder, ignore_errors=True)

    def _list_volumes(self, asked: Asked) -> Answer:
        rows = [volume.row for volume in self.volumes.values()]
        begin = int(asked.query.get("cursor", "0"))
        end = begin + self.page
        more = {"nextCursor": str(end)} if end < len(rows) else {}
        return Answer(200, {"networkVolumes": rows[begin:end], **more})

    def _create_volume(self, asked: Asked) -> Answer:
        if not 10 <= asked.body["size"] <= 4096:
            return self.problem(422, "size must be 10 to 4096")
        row = {"id": secrets.token_hex(5), "type": "STANDARD", **asked.body}
        folder = Path(tempfile.mkdtemp(prefix="tm-volume-"))
        self.volumes[row["id"]] = NetworkVolume(row, folder)
        return Answer(201, row)

    def _end_volume(self, asked: Asked) -> Answer:
        in_use = any(volume_of(instance) == asked.ids[0] for instance in self.alive)
        if in_use:
            return self.problem(400, "the network volume is in use")
        volume = self.volumes.pop(asked.ids[0], None)
        if volume is None:
            return self.problem(404, "network volume not found")
        shutil.rmtree(volume.folder, ignore_errors=True)
        return Answer(204)

    def _list(self, asked: Asked) -> Answer:
        listed = [instance for instance in self.instances.values() if instance.is_listed()]
        begin = int(asked.query.get("cursor", "0"))
        end = begin + self.page
        rows = [self._pod(instance, instance.poll()) for instance in listed[begin:end]]
        more = {"nextCursor": str(end)} if end < len(listed) else {}
        return Answer(200, {"pods": rows, **more})

    def _show(self, asked: Asked) -> Answer:
        instance = self.instances.get(asked.ids[0])
        if instance is None or not instance.is_listed():
            return self.problem(404, "pod not found")
        return Answer(200, self._pod(instance, instance.poll()))

    def _end(self, asked: Asked) -> Answer:
        instance = self.instances.get(asked.ids[0])
        if instance is None or instance.ended:
            return self.problem(404, "pod not found")
        instance.ends_soon()
        return Answer(204, afterwards=instance.end)

    def _pod(self, instance: RentableInstance, booted: bool) -> dict[str, Any]:
        body = dict(instance.body)
        status = "TERMINATED" if instance.ended else "RUNNING" if booted else "PROVISIONING"
        created = datetime.fromtimestamp(instance.created_t, timezone.utc).isoformat()
        direct = None
        if booted:
            command = f"ssh root@127.0.0.1 -p {instance.port}"
            direct = {
                "host": "127.0.0.1",
                "port": instance.port,
                "username": "root",
                "command": command,
            }
        return {
            "id": instance.provider_id,
            "name": instance.name,
            "image": body["image"],
            "args": "",
            "disk": body["disk"],
            "ports": body["ports"],
            "env": body["env"],
            "registry": None,
            "status": status,
            "actions": ["terminate"],
            "mounts": body.get("mounts", {}),
            "gpu": {name: body["gpu"][name] for name in ("id", "count")},
            "cloud": body["cloud"],
            "dataCenterId": "US-TX-3",
            "cudaVersion": "12.8",
            "ssh": {"proxy": None, "direct": direct},
            "template": None,
            "cost": 0.0 if instance.ended else instance.usd_per_h,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": created,
            "startedAt": created if booted else None,
        }
