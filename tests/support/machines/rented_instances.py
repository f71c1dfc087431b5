"""Rented boxes on record, for tests that need no provider."""

from __future__ import annotations

import time
from typing import Any

from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.workspace import Workspace

HOUR_S = 3600.0


def rented(
    host: str = "debug",
    *,
    usd_per_h: float = 4.0,
    hours: float = 10.0,
    since_t: float | None = None,
    ended_t: float | None = None,
    **body: Any,
) -> RentedBox:
    """A box that has been ready since `since_t` (now), for `hours` in all."""
    began_t = time.time() if since_t is None else since_t
    return RentedBox(
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
        body={"created_t": began_t, "ready_t": began_t, **body},
    )


def rent(workspace: Workspace, host: str = "debug", **fields: Any) -> RentedBox:
    """A host of this name is a rented box from now on."""
    return workspace.control.boxes.add(rented(host, **fields))
