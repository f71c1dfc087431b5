"""Toolset `provision`: boxes for rent. Nothing is rented or given back unless somebody agrees."""

from __future__ import annotations

from typing import Annotated

from mcp.types import InputRequiredResult, ToolAnnotations
from pydantic import Field

from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import Definition, ToolContext
from trainmaster.words.answers.rentals import ProvisionAnswer, ReleaseAnswer

_RENTS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
)
_GIVES_BACK = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True
)
# Of a call in which the user may have thought for long already.
_WAIT_S = 6.0


async def provision(
    context: ToolContext,
    *,
    offer: Annotated[str, Field(description="From list_offers")],
    hours: Annotated[float, Field(description="Longest use; the box is ended then")],
    name: Annotated[str, Field(description="What the host is to be called")] = "",
    image: str = "",
    disk_gib: Annotated[float, Field(ge=0)] = 0,
    region: str = "",
    idempotency_key: Annotated[str, Field(description="The same key again finds the box")] = "",
) -> ProvisionAnswer | InputRequiredResult:
    """Rent a box, which becomes a host; the user is asked to agree to the price. Pass an
    idempotency_key. Answers at once: the box boots by itself, list_hosts shows when it is ready.
    """
    from trainmaster.machines.renting.provision import provision as service

    return await confirmed(
        context,
        lambda workspace, confirm: service(
            workspace,
            offer,
            hours=hours,
            confirm=confirm,
            name=name or None,
            image=image or None,
            disk_gib=disk_gib or None,
            region=region or None,
            idempotency_key=idempotency_key or None,
            wait_s=_WAIT_S,
        ),
    )


async def release(
    context: ToolContext,
    *,
    box: Annotated[str, Field(description="The host's name, or the box's tag")],
    force: Annotated[bool, Field(description="Stop its runs, lose what isn't here")] = False,
) -> ReleaseAnswer | InputRequiredResult:
    """Give a rented box back for good, what is to be mirrored first. The user is asked."""
    from trainmaster.machines.renting.release import release as service

    return await confirmed(
        context,
        lambda workspace, confirm: service(
            workspace, box, confirm=confirm, force=force, wait_s=_WAIT_S
        ),
    )


TOOLS = (
    Definition(provision, "Rent a box", _RENTS),
    Definition(release, "Give a box back", _GIVES_BACK),
)
