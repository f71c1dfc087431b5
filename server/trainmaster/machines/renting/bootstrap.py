"""Turn an instance that has an address into a host that can run trainings.

The provider's "running" proves nothing: an instance is ready once a command over SSH has succeeded.
That connection also pins its key, as for any host.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.errors.errors import HostError, StateError
from trainmaster.machines.clouds import Cloud, Instance
from trainmaster.machines.host_options import HostOptions
from trainmaster.machines.host_registry import add_host, remove_host
from trainmaster.machines.renting.leases import LeaseTimer, ensure_lease, lease_of
from trainmaster.machines.renting.ssh_key import rented_key
from trainmaster.store.control.instances import RentedInstance
from trainmaster.store.host_record import DEFAULT_ROOT
from trainmaster.sync.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """`timer`: the instance's running lease timer; None if it isn't ready, and `problem` says
    why."""

    timer: LeaseTimer | None = None
    problem: str | None = None


async def bootstrap_instance(
    workspace: Workspace, cloud: Cloud, instance: RentedInstance, listed: Instance
) -> Bootstrapped:
    """Add an instance as a host, write its lease there and start its timer. Idempotent."""
    try:
        await _add(workspace, instance, listed)
        lease = lease_of(instance, cloud)
        return Bootstrapped(timer=await ensure_lease(workspace, instance, lease))
    except (HostError, StateError) as error:  # also if our private key can't be read
        return Bootstrapped(problem=f"{error.code}: {error.message}")


async def _add(workspace: Workspace, instance: RentedInstance, listed: Instance) -> None:
    """Raises:
    HostError: nothing answers there yet, or it refuses the key.
    """
    host = f"[{listed.address}]" if ":" in (listed.address or "") else listed.address
    record = workspace.control.host(instance.host)
    if record is not None:
        if (record.address, record.port, record.user) == (listed.address, listed.port, listed.user):
            return
        await remove_host(workspace, instance.host, force=True)  # its address has changed
    await add_host(
        workspace,
        instance.host,
        f"{listed.user}@{host}" + (f":{listed.port}" if listed.port else ""),
        HostOptions(
            key=str(rented_key(workspace.home).private),
            root=instance.root or DEFAULT_ROOT,
        ),
    )
