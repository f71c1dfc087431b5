"""The config of a run that has migrated: what depends on the host is planned for the new one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Of a config that was planned again: the number of the placement that it is for.
PLACEMENT = "placement"
_OF_HOST = ("data", "environment", "inputs", "script", "slurm")


def rehosted(config: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the sections that depend on the host as in `planned`, the plan of the same run
    for another host; all that the losses follow from stays."""
    kept = {name: value for name, value in config.items() if name not in _OF_HOST}
    found = {name: planned[name] for name in _OF_HOST if name in planned}
    if "data" in config and "data" in found:
        found["data"] = {**found["data"], "skip": config["data"].get("skip") or []}
    if "path" in config.get("model", {}):
        kept["model"] = {**config["model"], "path": planned["model"].get("path")}
    return {**kept, **found, PLACEMENT: planned[PLACEMENT]}
