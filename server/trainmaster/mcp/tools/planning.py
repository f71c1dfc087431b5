"""Toolset `plan`: what a training takes, and where it can run. Nothing here starts or rents."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

from mcp.types import InputRequiredResult
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from trainmaster.answers.hosts import HostsAnswer
from trainmaster.answers.rentals import CostsAnswer, OffersAnswer
from trainmaster.answers.runs import PlanAnswer
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import READS, READS_OUTSIDE, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import Host, Sets, Spec

if TYPE_CHECKING:
    from trainmaster.errors.confirmation import Confirm
    from trainmaster.sync.workspace import Workspace

_LONGEST_CHECK_S = 38.0


def _named(on: str) -> str:
    """A machine that is not there, where one is given: else the plan would be for a host."""
    if not on.strip():
        raise PydanticCustomError("empty", "It names no machine: give h100:8, or leave it out")
    return on


async def plan_run(
    context: ToolContext,
    *,
    spec: Spec,
    host: Host = "",
    set: Sets = (),
    on: Annotated[
        str, AfterValidator(_named), Field(description="Imagined: h100:8,4090; kaggle; offers")
    ] = "",
    detail: Annotated[bool, Field(description="Reasons; all fields")] = False,
) -> PlanAnswer | InputRequiredResult:
    """Check a spec and estimate memory, hours, dollars; starts nothing. What can't work is refused,
    with what is accepted. `framework: hf` lists fields, `data: PATH` inspects it. A spec:

    name: my-gpt
    framework: nanogpt
    model: {n_layer: 4, n_head: 4, d_model: 128}
    data: {sources: [{path: ./corpus}]}
    steps: 200
    """
    from trainmaster.machines.renting.plan_on import plan_on
    from trainmaster.runs.data.inspect_data import data_asked_about, planned_data
    from trainmaster.runs.planning import plan_run as planning

    data = data_asked_about(spec)
    if data is not None:
        return await planned_data(workspace_of(context), data)

    def planned(workspace: Workspace, confirm: Confirm | None) -> Awaitable[PlanAnswer]:
        if on:
            return plan_on(workspace, spec, on, sets=set, confirm=confirm, detail=detail)
        return planning.plan_run(
            workspace, spec, host=host or None, sets=set, confirm=confirm, detail=detail
        )

    if workspace_of(context).policy.reads_only:  # no approval can be recorded
        return await planned(workspace_of(context), None)
    return await confirmed(context, planned)


async def list_hosts(
    context: ToolContext,
    *,
    check: Annotated[str, Field(description="A host to check now")] = "",
) -> HostsAnswer:
    """The hosts, with their state at the last check. `check`: what stands between one and a
    training, with remedies; `fail` keeps any training from running. For a new machine: add_host,
    or list_offers.
    """
    from trainmaster.machines import host_registry as registry
    from trainmaster.machines.check_host import check_host

    workspace = workspace_of(context)
    checked = await check_host(workspace, check, within_s=_LONGEST_CHECK_S) if check else None
    answer = await registry.list_hosts(workspace)
    return answer.model_copy(update={"check": checked})


async def list_offers(
    context: ToolContext,
    *,
    gpu: Annotated[str, Field(description="h100, ...")] = "",
    count: Annotated[int, Field(ge=1)] = 1,
    max_usd_h: Annotated[float, Field(ge=0, description="0: any")] = 0,
    region: str = "",
    interruptible: bool = False,
    provider: str = "",
    spec: str = "",
    limit: Annotated[int, Field(ge=1, le=500)] = 20,
) -> OffersAnswer:
    """Instances with `count` GPUs for rent now, by price; with a spec by predicted dollars per
    billion tokens. provision rents one.
    """
    from trainmaster.machines.clouds import Wanted
    from trainmaster.machines.renting import offers

    wanted = Wanted(
        gpu or None, count, max_usd_h or None, region or None, interruptible=interruptible
    )
    query = offers.OffersQuery(wanted, provider or None, spec or None, limit=limit)
    return await offers.list_offers(workspace_of(context), query)


async def costs(context: ToolContext) -> CostsAnswer:
    """What renting has cost, by instance and run, what open leases may still cost, and the cap."""
    from trainmaster.machines.renting import costs as query

    return await query.list_costs(workspace_of(context))


TOOLS = (
    Definition(plan_run, "Plan a training", READS_OUTSIDE),
    Definition(list_hosts, "List hosts", READS),
    Definition(list_offers, "List GPUs for rent", READS_OUTSIDE),
    Definition(costs, "Costs of renting", READS),
)
