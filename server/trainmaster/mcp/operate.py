"""Toolset `operate`: start, stop and resume runs. Each call is safe to cancel and to repeat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainmaster.answers import LaunchAnswer, StopAnswer
from trainmaster.mcp.definition import ENDS, STARTS, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import Host, IdempotencyKey, RunId, Sets, Spec


async def launch(
    context: ToolContext,
    *,
    spec: Spec,
    host: Host = "",
    set: Sets = (),
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer:
    """Start a training, detached; returns its run_id at once.

    Plans first and starts nothing where the plan is refused (see plan_run). Pass an
    idempotency_key: a call repeated after a lost answer then finds the run instead of starting a
    second one. Go on with wait_for_event.
    """
    from trainmaster import launch as service

    return await service.launch(
        workspace_of(context),
        spec,
        host=host or None,
        sets=set,
        idempotency_key=idempotency_key or None,
    )


async def stop(context: ToolContext, *, run_id: RunId) -> StopAnswer:
    """Stop a run: the trainer saves a checkpoint and ends. Can be resumed; repeating is harmless.

    `pending: true` means that the host has not been reached yet; the stop is delivered when it is.
    """
    from trainmaster import resume as service

    return await service.stop(workspace_of(context), run_id)


async def resume(
    context: ToolContext,
    *,
    run_id: RunId,
    start: Annotated[
        str, Field(description="`latest`, `best`, `scratch`, or a checkpoint's step")
    ] = "latest",
    set: Sets = (),
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer:
    """Start a run that has ended again, as a new attempt from one of its verified checkpoints.

    `set` changes the last attempt's configuration, e.g. `steps=400` to train on. A damaged newest
    checkpoint is passed over for the one before it, and list_checkpoints tells why.
    """
    from trainmaster import resume as service

    return await service.resume(
        workspace_of(context),
        run_id,
        start=start,
        sets=set,
        idempotency_key=idempotency_key or None,
    )


TOOLS = (
    Definition(launch, "Launch a training", STARTS),
    Definition(stop, "Stop a run", ENDS),
    Definition(resume, "Resume a run", STARTS),
)
