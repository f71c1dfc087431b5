"""`adopt`, of the toolset `operate`."""

from __future__ import annotations

from typing import Annotated

from mcp.types import InputRequiredResult
from pydantic import Field

from trainmaster.answers.adopt import AdoptAnswer
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import STARTS_OUTSIDE, Definition, ToolContext
from trainmaster.mcp.parameters import Host, IdempotencyKey, Sets, Spec


async def adopt(
    context: ToolContext,
    *,
    folder: Annotated[str, Field(description="Path, or host:/path")],
    data: Annotated[str, Field(description="What to train on, with the folder's settings")] = "",
    spec: Spec = "",
    host: Host = "",
    set: Sets = (),
    start: Annotated[str, Field(description="latest (default), or a step")] = "",
    name: str = "",
    python: Annotated[str, Field(description="An interpreter there with PyTorch")] = "",
    idempotency_key: IdempotencyKey = "",
) -> AdoptAnswer | InputRequiredResult:
    """Continue as a new run from the output folder of nanoGPT, LitGPT or HF, with `data` or a
    `spec`; without both it only verifies the checkpoints and answers with a starting spec. The
    folder is not changed.
    """
    from trainmaster.runs import adopt as adopting

    options = adopting.AdoptOptions(
        spec=spec or None,
        data=data or None,
        host=host or None,
        name=name or None,
        sets=set,
        start=start or "latest",
        python=python or None,
        write=None,
    )
    return await confirmed(
        context,
        lambda workspace, confirm: adopting.adopt(
            workspace, folder, options, idempotency_key=idempotency_key or None, confirm=confirm
        ),
    )


ADOPT = Definition(adopt, "Continue from a training's output", STARTS_OUTSIDE)
