"""`plot_metrics`, of the toolset `observe`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

from mcp.types import CallToolResult, ImageContent
from pydantic import Field

from trainmaster.answers.plot import Axis, PlotAnswer
from trainmaster.mcp.definition import READS, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import Words


async def plot_metrics(
    context: ToolContext,
    *,
    run_id: Annotated[Words, Field(description="Runs or log files")],
    key: Words = (),
    x: Axis = "step",
) -> Annotated[CallToolResult, PlotAnswer]:
    """A picture of curves (loss, lr, throughput, GPU use), with restarts and findings marked; also
    at `path`. For values: query_metrics.
    """
    from trainmaster.runs.metrics.plot import plot_runs

    answer = await plot_runs(workspace_of(context), run_id, keys=key, axis=x)
    return CallToolResult(
        content=[_image(Path(str(answer.path)))], structured_content=answer.model_dump()
    )


def _image(path: Path) -> ImageContent:
    data = base64.b64encode(path.read_bytes()).decode()
    return ImageContent(type="image", data=data, mime_type="image/png")


PLOT = Definition(plot_metrics, "Draw curves", READS)
