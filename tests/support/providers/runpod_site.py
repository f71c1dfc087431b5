"""RunPod's API, version 2, as far as it is used."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from typing import Any

from support.providers.boxes import RentableBox, knowing
from support.providers.described import description
from support.providers.site import Answer, Asked, Site

_H100, _4090, _MI300 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X OAM"
# id, memory, secure, community, most GPUs in one pod, data centers with stock
_STOCK: tuple[tuple[str, int, float, float, int, tuple[str, ...]], ...] = (
    (_H100, 80, 3.99, 2.69, 8, ("US-TX-3", "EU-NL-1")),
    (_4090, 24, 0.69, 0.34, 8, ("US-TX-3",)),
    ("NVIDIA A100-SXM4-80GB", 80, 1.79, 0.0, 8, ()),
    (_MI300, 192, 2.49, 0.0, 8, ("EU-RO-1",)),
)


class RunPodSite(Site):
    PREFIX = "/v2"
    ROUTES = (
        ("GET", "/catalog/gpus", "offers", "_offers"),
        ("POST", "/pods", "create", "_create"),
        ("GET", "/pods", "list", "_list"),
        ("GET", "/pods/([^/]+)", "box", "_box"),
        ("DELETE", "/pods/([^/]+)", "end", "_end"),
    )

    def __init__(self, has_sshd: bool = True) -> None:
        super().__init__(description("runpod_openapi.json", self.PREFIX), has_sshd)

    def problem(self, status: int, words: str) -> Answer:
        return Answer(status, {"title": "Refused", "status": status, "detail": words})

    def _offers(self, asked: Asked) -> Answer:
        count = int(asked.query.get("count", "1"))
        return Answer(200, {"gpus": [self._gpu_type(*row, count) for row in _STOCK]})

    def _gpu_type(
        self,
        gpu: str,
        memory: int,
        secure: float,
        community: float,
        most: int,
        centers: tuple[str, ...],
        count: int,
    ) -> dict[str, Any]:
        is_free = bool(centers) and count <= most
        told: dict[str, Any] = {
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
            "maxCount": {"secure": most, "community": most if community else 0},
            "availability": "HIGH" if is_free else "NONE",
        }
        if is_free:
            told["dataCenters"] = [
                {"id": name, "name": name, "availability": "LOW"} for name in centers
            ]
        return told

    def _create(self, asked: Asked) -> Answer:
        body = asked.body
        if self.modes.no_capacity:
            words = "There are no longer any instances available with the requested specifications."
            return self.problem(400, words)
        row = next((row for row in _STOCK if row[0] == body["gpu"]["id"]), None)
        if row is None:
            return self.problem(400, f"unknown GPU {body['gpu']['id']}")
        price = row[2] if body.get("cloud", "SECURE") == "SECURE" else row[3]
        cost = price * body["gpu"].get("count", 1) * self.modes.price_factor
        provider_id, own_key = secrets.token_hex(7), f"pod-key-{secrets.token_hex(12)}"
        environment = {
            **body.get("env", {}),
            "RUNPOD_POD_ID": provider_id,
            "RUNPOD_API_KEY": own_key,
        }
        self.boxes[provider_id] = RentableBox(
            provider_id=provider_id,
            name=body["name"],
            let_in=knowing(environment.get("PUBLIC_KEY", "")),
            usd_per_h=cost * self.modes.cost_factor,
            modes=self.modes,
            environment=environment,
            own_key=own_key,
            body=body,
        )
        return Answer(201, self._pod(self.boxes[provider_id], booted=False))

    def _list(self, asked: Asked) -> Answer:
        listed = [box for box in self.boxes.values() if box.is_listed()]
        return Answer(200, {"pods": [self._pod(box, box.look()) for box in listed]})

    def _box(self, asked: Asked) -> Answer:
        box = self.boxes.get(asked.ids[0])
        if box is None or not box.is_listed():
            return self.problem(404, "pod not found")
        return Answer(200, self._pod(box, box.look()))

    def _end(self, asked: Asked) -> Answer:
        box = self.boxes.get(asked.ids[0])
        if box is None or box.ended:
            return self.problem(404, "pod not found")
        box.ends_soon()
        return Answer(204, afterwards=box.end)

    def _pod(self, box: RentableBox, booted: bool) -> dict[str, Any]:
        body = dict(box.body)
        status = "TERMINATED" if box.ended else "RUNNING" if booted else "PROVISIONING"
        created = datetime.fromtimestamp(box.created_t, timezone.utc).isoformat()
        direct = None
        if booted:
            command = f"ssh root@127.0.0.1 -p {box.port}"
            direct = {"host": "127.0.0.1", "port": box.port, "username": "root", "command": command}
        return {
            "id": box.provider_id,
            "name": box.name,
            "image": body["image"],
            "args": "",
            "disk": body["disk"],
            "ports": body["ports"],
            "env": body["env"],
            "registry": None,
            "status": status,
            "actions": ["terminate"],
            "mounts": {},
            "gpu": {name: body["gpu"][name] for name in ("id", "count")},
            "cloud": body["cloud"],
            "dataCenterId": "US-TX-3",
            "cudaVersion": "12.8",
            "ssh": {"proxy": None, "direct": direct},
            "template": None,
            "cost": 0.0 if box.ended else box.usd_per_h,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": created,
            "startedAt": created if booted else None,
        }
