"""`list_offers`, of the toolset `observe`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainmaster.mcp.definition import READS_OUTSIDE, Definition, ToolContext, workspace_of
from trainmaster.words.answers.rentals import OffersAnswer


async def list_offers(
    context: ToolContext,
    *,
    gpu: str = "",
    count: Annotated[int, Field(ge=1)] = 1,
    max_usd_h: Annotated[float, Field(ge=0, description="0: any")] = 0,
    region: str = "",
    interruptible: bool = False,
    provider: str = "",
    spec: str = "",
    limit: Annotated[int, Field(ge=1, le=500)] = 20,
) -> OffersAnswer:
    """Instances with `count` GPUs (h100, ...) for rent now, by price; with a spec by predicted
    dollars per billion tokens.
    """
    from trainmaster.machines.clouds import Wanted
    from trainmaster.machines.renting import offers

    wanted = Wanted(
        gpu or None, count, max_usd_h or None, region or None, interruptible=interruptible
    )
    query = offers.OffersQuery(wanted, provider or None, spec or None, limit=limit)
    return await offers.list_offers(workspace_of(context), query)


LIST_OFFERS = Definition(list_offers, "List GPUs for rent", READS_OUTSIDE)
