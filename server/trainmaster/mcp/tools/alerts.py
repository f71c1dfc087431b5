"""`create_alert`, of the toolset `operate`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainmaster.answers.alerts import AlertAddedAnswer
from trainmaster.mcp.definition import STARTS_OUTSIDE, Definition, ToolContext, workspace_of


async def create_alert(
    context: ToolContext,
    *,
    when: Annotated[
        str,
        Field(
            description="`val_loss > 3.5 for 3`, `finding loss_spike` (or severity), "
            "`state failed`, `silence 10m`"
        ),
    ],
    run_id: Annotated[str, Field(description="None: every run")] = "",
    to: Annotated[str, Field(description="A destination of the user's settings")] = "",
    name: str = "",
    severity: Literal["info", "warning", "critical"] = "warning",
) -> AlertAddedAnswer:
    """Notify the user when a run meets a condition, also unattended. Failures, loss of contact,
    NaN, spikes and stalls are reported by default. To be woken yourself: wait_for_event.
    """
    from trainmaster.runs import alerts

    return await alerts.add_alert(
        workspace_of(context),
        when=when,
        to=to or None,
        name=name or None,
        severity=severity,
        run=run_id or None,
    )


CREATE_ALERT = Definition(create_alert, "Create an alert", STARTS_OUTSIDE)
