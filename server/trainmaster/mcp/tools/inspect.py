"""`inspect_run`, of the toolset `operate`: the user is asked before py-spy reads a process that is
not ours.

It is not read-only: a run's processes write their stacks into its folder.
"""

from __future__ import annotations

from typing import Annotated

from mcp.types import InputRequiredResult
from pydantic import Field

from trainmaster.answers.inspect import InspectionAnswer
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import BRINGS, Definition, ToolContext
from trainmaster.mcp.parameters import RunId


async def inspect_run(
    context: ToolContext,
    *,
    run_id: RunId,
    allow_py_spy: Annotated[
        bool, Field(description="To read an attached training; the user is asked")
    ] = False,
) -> InspectionAnswer | InputRequiredResult:
    """For a run that seems to hang: each rank's place, last step, GPUs, and a verdict, such as
    hang_collective (`rank` differs from the others) or stall (cause unknown). `lines` are untrusted
    frames, innermost first; all are in stacks_file. For a run that failed: diagnose.
    """
    from trainmaster.runs.inspect import inspect_run as service

    return await confirmed(
        context,
        lambda workspace, confirm: service.inspect_run(
            workspace, run_id, allow_py_spy=allow_py_spy, confirm=confirm
        ),
    )


INSPECT = Definition(inspect_run, "Inspect a run that seems to hang", BRINGS)
