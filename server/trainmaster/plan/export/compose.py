"""Docker Compose: one service (the Compose specification, compose-spec.io)."""

from __future__ import annotations

from typing import Any

from trainmaster.plan.export.needs import Needs

_FOLDER = "/run-folder"
GRACE_S = 120
RESTARTS = 3


def compose(_name: str, needs: Needs, image: str) -> dict[str, Any]:
    """The document with one service, `trainer`."""
    service: dict[str, Any] = {
        "image": image,
        "command": ["sh", "train.sh"],
        "working_dir": _FOLDER,
        "volumes": [f".:{_FOLDER}"],
        "init": True,
        "shm_size": needs.shared,
        "stop_grace_period": f"{GRACE_S}s",
        "restart": f"on-failure:{RESTARTS}",
    }
    if needs.secrets:
        service["environment"] = list(needs.secrets)  # each with its value where compose runs
    if needs.gpus:
        device = {"driver": "nvidia", "count": needs.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return {"services": {"trainer": service}}
