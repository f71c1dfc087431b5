"""From an address that a provider tells to a host that runs can be placed on.

"Running" says nothing: a box counts once a command over SSH has succeeded. Its key is pinned by
that, as for any host.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.machines.clouds import Box, Cloud
from trainmaster.machines.registry import HostOptions, add_host, remove_host
from trainmaster.machines.renting import leases
from trainmaster.machines.renting.keys import rented_key
from trainmaster.store.control.instances import RentedBox
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace
from trainmaster.words.errors import HostError, StateError


@dataclass(frozen=True, slots=True)
class Admitted:
    """`own_timer`: what the box can do by itself at its lease's end; None where we are not in yet,
    and `waits_for` says why."""

    own_timer: leases.OwnTimer | None = None
    waits_for: str | None = None


async def let_in(workspace: Workspace, cloud: Cloud, box: RentedBox, listed: Box) -> Admitted:
    """Make a host of a box, and leave its lease there, with a timer that runs. May be repeated."""
    try:
        await _add(workspace, box, listed)
        lease = leases.lease_of(box, cloud)
        return Admitted(own_timer=await leases.keep(workspace, box, lease))
    except (HostError, StateError) as error:  # also a key of ours that is no key any more
        return Admitted(waits_for=f"{error.code}: {error.message}")


async def _add(workspace: Workspace, box: RentedBox, listed: Box) -> None:
    """Raises:
    HostError: nobody answers there yet, or lets us in.
    """
    host = f"[{listed.address}]" if ":" in (listed.address or "") else listed.address
    known = workspace.control.host(box.host)
    if known is not None:
        if (known.address, known.port, known.user) == (listed.address, listed.port, listed.user):
            return
        await remove_host(workspace, box.host, force=True)  # the address that it was told has moved
    await add_host(
        workspace,
        box.host,
        f"{listed.user}@{host}" + (f":{listed.port}" if listed.port else ""),
        HostOptions(
            key=str(rented_key(workspace.home).private),
            root=str(box.body.get("root") or DEFAULT_ROOT),
        ),
    )
