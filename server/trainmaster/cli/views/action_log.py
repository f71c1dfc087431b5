"""What people see of `trainmaster log`."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.answers.actions import ActionLogAnswer
from trainmaster.cli.views.blocks import Block, Grid, view


@view.register
def _(answer: ActionLogAnswer) -> list[Block]:
    if not answer.actions:
        return [f"No call has acted yet. They are recorded in {answer.path}"]
    rows = [
        (
            row.time,
            ", ".join(part for part in (row.user, row.face, row.client) if part),
            row.action,
            " ".join(f"{name}={value}" for name, value in row.target.items()),
            row.outcome,
            spoken_duration(row.duration_s),
        )
        for row in answer.actions
    ]
    return [Grid(("time", "by", "action", "on", "outcome", "took"), rows), f"From {answer.path}"]
