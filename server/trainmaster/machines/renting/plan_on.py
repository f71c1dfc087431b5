"""Plans for machines by their names, or for those that providers offer now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainmaster.answers.runs import PlanAnswer
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import CloudError
from trainmaster.machines.clouds import Offer
from trainmaster.machines.renting.offers import ANYTHING, offered_now
from trainmaster.machines.renting.token_price import facts_of
from trainmaster.plan.imagined import Destination, destination_of
from trainmaster.plan.list_prices import PRICES
from trainmaster.runs.planning import plan_on as planning
from trainmaster.sync.workspace import Workspace

OFFERS = "offers"
# Of each kind and number of GPUs the cheapest; an answer has room for about so many.
_MOST = 16


async def plan_on(
    workspace: Workspace,
    spec: str,
    on: str,
    *,
    sets: Sequence[str] = (),
    confirm: Confirm | None = None,
    detail: bool = True,
    write: Path | None = None,
    trace: bool = False,
) -> PlanAnswer:
    """The plan for `h100:8`, or how several compare (`a100:1,h100:8`, `kaggle`); `offers`: what
    providers with a key offer now, or without any the list prices' GPUs.

    Raises:
        TrainmasterError: as `planning.plan_on`.
    """
    if on.strip().lower() == OFFERS:
        destinations = await _offered(workspace)
    else:
        destinations = planning.destinations_of(on)
    return await planning.plan_on(
        workspace,
        spec,
        destinations,
        sets=sets,
        confirm=confirm,
        detail=detail,
        write=write,
        trace=trace,
    )


async def _offered(workspace: Workspace) -> list[Destination]:
    try:
        offers = await offered_now(workspace, ANYTHING)
    except CloudError:
        return [
            destination_of(f"{price.gpu}:{count}") for price in PRICES[:_MOST] for count in (1, 8)
        ]
    cheapest: dict[tuple[str, int], Offer] = {}
    for offer in sorted(offers, key=lambda offer: offer.usd_per_h):
        cheapest.setdefault((offer.gpu, offer.count), offer)
    return [_destination(offer) for offer in list(cheapest.values())[:_MOST]]


def _destination(offer: Offer) -> Destination:
    facts = facts_of(offer).model_copy(update={"measured_at": None})
    return Destination(
        offer.name, facts, offer.gpu, offer.count, price_source=f"the offer of {offer.provider}"
    )
