"""On which of a run's hosts a rank is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def host_of_rank(config: Mapping[str, Any], rank: int) -> str | None:
    """The name of the host that a rank of an attempt is on, by the attempt's configuration; None
    where the run has one."""
    compute, hosts = config.get("compute") or {}, (config.get("nodes") or {}).get("hosts") or ()
    try:
        nodes = int(compute["nodes"])
        taking_part = compute.get("taking_part") or range(nodes)
        number = taking_part[rank // (int(compute["processes"]) // nodes)]
        return str(hosts[number]["name"]) if hosts else None
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
