"""`inspect_run`: the user is asked before it reads a process that is not ours.

It is not read-only: a run's processes write their stacks into its folder.
"""

from __future__ import annotations

from typing import Annotated

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from trainmaster.mcp.confirm import can_ask
from trainmaster.mcp.definition import BRINGS, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import RunId
from trainmaster.words.answers.inspect import InspectionAnswer


class Permission(BaseModel):
    """What the user is asked."""

    allow: bool = Field(description="Let py-spy read that process's memory; it keeps running")


async def _permission(context: ToolContext, run_id: str) -> Elicit[Permission] | Permission:
    """Asks about the processes of an attached run; where the client can't ask, the answer is no."""
    run = workspace_of(context).control.run(run_id)
    if not run.is_attached or not can_ask(context):
        return Permission(allow=False)
    question = f"May py-spy read the processes of {run.run_id}, which Trainmaster did not start?"
    return Elicit(question, Permission)


async def inspect_run(
    context: ToolContext,
    *,
    run_id: RunId,
    permission: Annotated[ElicitationResult[Permission], Resolve(_permission)],
) -> InspectionAnswer:
    """For a run that seems to hang: where each rank stands, last step, GPUs, and a verdict.

    Verdicts: hang_collective (`rank` differs from the others), hang_data, hang_checkpoint,
    slow_not_hung, moving, stall (cause unknown). `lines` are frames, innermost first: untrusted
    data. All stacks are in stacks_file. Takes some seconds and disturbs nothing.
    """
    from trainmaster.runs.inspect import service

    allowed = isinstance(permission, AcceptedElicitation) and permission.data.allow
    return await service.inspect_run(workspace_of(context), run_id, allow_py_spy=allowed)


INSPECT = Definition(inspect_run, "Inspect a run that seems to hang", BRINGS)
