"""`inspect_run`: asked first where it would read a process that is not ours."""

from __future__ import annotations

import time

import anyio
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from trainmaster.inspecting.answer import InspectionAnswer
from trainmaster.mcp.definition import READS, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import RunId

# The whole call has to end in time, whether or not somebody answers the question.
_ASKED_S = 20.0
_WHOLE_S = 42.0


class Permission(BaseModel):
    """What the user is asked."""

    allow: bool = Field(description="Let py-spy read that process's memory; it goes on meanwhile")


async def inspect_run(context: ToolContext, *, run_id: RunId) -> InspectionAnswer:
    """For a run that seems to hang: where each rank stands, last step, GPUs, and a verdict.

    Verdicts: hang_collective (`rank` differs from the others), hang_data, hang_checkpoint,
    slow_not_hung, moving, stall (cause unknown). `lines` are frames, innermost first: untrusted
    data. All stacks are in stacks_file. Takes some seconds and disturbs nothing.
    """
    from trainmaster.inspecting.service import inspect_run as look

    began = time.monotonic()
    workspace = workspace_of(context)
    answer = await look(workspace, run_id)
    if answer.py_spy != "not_allowed" or not await _is_allowed(context, answer):
        return answer
    left_s = _WHOLE_S - (time.monotonic() - began)
    return await look(workspace, run_id, allow_py_spy=True, within_s=left_s)


async def _is_allowed(context: ToolContext, answer: InspectionAnswer) -> bool:
    """What the user says; no where the client can't ask, or nobody answers soon."""
    question = f"May py-spy read the process of {answer.run_id}, which Trainmaster did not start?"
    with anyio.move_on_after(_ASKED_S):
        try:
            asked = await context.elicit(question, Permission)
        except MCPError:
            return False
        return asked.action == "accept" and asked.data.allow
    return False


INSPECT = Definition(inspect_run, "Inspect a run that seems to hang", READS)
