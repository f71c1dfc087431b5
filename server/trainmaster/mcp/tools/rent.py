"""Toolset `provision`: rented instances. Nothing is rented or released without agreement."""

from __future__ import annotations

from typing import Annotated

from mcp.types import InputRequiredResult, ToolAnnotations
from pydantic import Field

from trainmaster.answers.rentals import ProvisionAnswer, ReleaseAnswer
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import STARTS_OUTSIDE, Definition, ToolContext
from trainmaster.mcp.parameters import IdempotencyKey, Spec

_RELEASES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True
)
# Short, since the user may have taken long to answer in the same call.
_WAIT_S = 6.0


async def provision(
    context: ToolContext,
    *,
    offer: str,
    hours: float,
    name: str = "",
    image: str = "",
    disk_gib: Annotated[float, Field(ge=0)] = 0,
    region: str = "",
    keep: bool = False,
    volume: Annotated[str, Field(description="NAME; new: NAME:GB")] = "",
    spec: Spec = "",
    idempotency_key: IdempotencyKey = "",
) -> ProvisionAnswer | InputRequiredResult:
    """Rent an offer, beyond an hour for a rehearsed `spec`; the user agrees. list_hosts shows when
    it has booted; release ends it. `keep`: also when idle.
    """
    from trainmaster.machines.renting.provision import ProvisionRequest
    from trainmaster.machines.renting.provision import provision as service
    from trainmaster.machines.renting.volume_request import volume_request

    request = ProvisionRequest(
        offer,
        hours,
        name=name or None,
        image=image or None,
        disk_gib=disk_gib or None,
        region=region or None,
        spec=spec or None,
        idempotency_key=idempotency_key or None,
        keep=keep,
        volume=volume_request(volume, region or None),
    )

    return await confirmed(
        context,
        lambda workspace, confirm: service(workspace, request, confirm=confirm, wait_s=_WAIT_S),
    )


async def release(
    context: ToolContext,
    *,
    instance: Annotated[str, Field(description="Name or tag")],
    force: Annotated[bool, Field(description="Stop its runs, lose what isn't here")] = False,
) -> ReleaseAnswer | InputRequiredResult:
    """End an instance or volume; data to mirror is copied here first. The user is asked."""
    from trainmaster.machines.renting.release import release as service

    return await confirmed(
        context,
        lambda workspace, confirm: service(
            workspace, instance, confirm=confirm, force=force, wait_s=_WAIT_S
        ),
    )


TOOLS = (
    Definition(provision, "Rent an instance", STARTS_OUTSIDE),
    Definition(release, "Release an instance", _RELEASES),
)
