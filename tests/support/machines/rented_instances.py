"""Records of rented instances, for tests without a provider."""

from __future__ import annotations

import time
from typing import Any

from support.providers.instances import RentableInstance
from support.providers.site import Site

from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.sync.workspace import Workspace

HOUR_S = 3600.0


def rented(
    host: str = "debug",
    *,
    usd_per_h: float = 4.0,
    hours: float = 10.0,
    since_t: float | None = None,
    ended_t: float | None = None,
    **details: Any,
) -> RentedInstance:
    """An instance that has been ready since `since_t` (default: now), with a lease of `hours`."""
    began_t = time.time() if since_t is None else since_t
    return RentedInstance(
        tag=f"tm-0a1b2c-{host[:6]:a<6}",
        host=host,
        provider="runpod",
        state=RentState.READY if ended_t is None else RentState.ENDED,
        provider_id="7",
        intended_t=began_t,
        lease_end_t=began_t + hours * HOUR_S,
        usd_per_h=usd_per_h,
        budget_usd=usd_per_h * hours,
        ended_t=ended_t,
        created_t=began_t,
        ready_t=began_t,
        **details,
    )


def rent(workspace: Workspace, host: str = "debug", **fields: Any) -> RentedInstance:
    """Record a rented instance behind the host of this name."""
    return workspace.control.instances.add(rented(host, **fields))


def expired(workspace: Workspace, site: Site, host: str) -> RentedInstance:
    """Record an instance behind this host whose lease is over, and which RunPod still lists."""
    since_t = time.time() - 1.1 * HOUR_S
    instance = rent(workspace, host, hours=1.0, since_t=since_t, first_listed_t=since_t)
    body = {"image": "", "disk": 10, "ports": [], "env": {}, "cloud": "SECURE"}
    body["gpu"] = {"id": "NVIDIA H100 80GB HBM3", "count": 1}
    site.instances["7"] = RentableInstance(
        "7", instance.tag, instance.usd_per_h, site.modes, lambda _: None, body, created_t=since_t
    )
    return instance
