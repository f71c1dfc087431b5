"""Records of rented instances, for tests without a provider."""

from __future__ import annotations

import time
from typing import Any

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
