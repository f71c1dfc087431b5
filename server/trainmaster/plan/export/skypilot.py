"""SkyPilot: one task, as its YAML reference has it."""

from __future__ import annotations

from typing import Any

from trainmaster.plan.export.compose import RESTARTS
from trainmaster.plan.export.needs import Needs

# SkyPilot's names of our table's GPUs; `A100` is the one of 40 GB there, `V100` that of 16 GB.
_ACCELERATORS = {
    "gb200": "GB200",
    "b200": "B200",
    "h200": "H200",
    "h100": "H100",
    "h100-96": "H100",
    "h100-pcie": "H100",
    "a100-40": "A100",
    "a100": "A100-80GB",
    "l40s": "L40S",
    "l40": "L40",
    "a40": "A40",
    "l4": "L4",
    "4090": "RTX4090",
    "3090": "RTX3090",
    "a10g": "A10G",
    "a10": "A10",
    "v100": "V100-32GB",
    "t4": "T4",
    "p100": "P100",
}
# SkyPilot's own default; the environment of a framework takes up to 15 GB of it.
_LEAST_DISK_GB = 256
_ENVIRONMENT_GB = 50


def skypilot_task(name: str, needs: Needs, _image: str) -> dict[str, Any]:
    """The task; on GPUs where the plan is for some."""
    resources: dict[str, Any] = {}
    if needs.gpus:
        gpu = _ACCELERATORS.get(needs.gpu or "")
        # Without a known name: a GPU of at least 16 GB, whichever is offered.
        resources["accelerators"] = f"{gpu}:{needs.gpus}" if gpu else f"16GB+:{needs.gpus}"
    else:
        resources["cpus"] = f"{needs.cpus}+"
    if needs.memory_gib is not None:
        resources["memory"] = f"{needs.memory_gib}+"
    resources["disk_size"] = max(_LEAST_DISK_GB, needs.disk_gib + _ENVIRONMENT_GB)
    resources["job_recovery"] = {"strategy": "FAILOVER", "max_restarts_on_errors": RESTARTS}
    task: dict[str, Any] = {"name": name, "workdir": ".", "resources": resources}
    if needs.secrets:
        task["secrets"] = dict.fromkeys(needs.secrets)  # null: `sky jobs launch --secret NAME`
    return {**task, "run": "sh train.sh"}
