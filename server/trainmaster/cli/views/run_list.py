"""What people see of a list of runs."""

from __future__ import annotations

from trainmaster.answers.run_list import RunRow, RunsAnswer
from trainmaster.cli.views.blocks import Block, Grid, pairs, steps, view


@view.register
def _(answer: RunsAnswer) -> list[Block]:
    failed: list[Block] = [
        f"Not read: {failure.subject}: {failure.code}: {failure.message}"
        for failure in answer.failed or ()
    ]
    if not answer.runs:
        return failed or ["No runs."]
    rows = [
        (row.run_id, _state(row), steps(row.step, row.target_step), row.host, pairs(row.labels))
        for row in answer.runs
    ]
    grid = Grid(("run", "state", "step", "host", "labels"), rows)
    return [grid, *(["There are more; raise --limit."] if answer.more else []), *failed]


def _state(row: RunRow) -> str:
    return f"{row.state} (quarantined)" if row.quarantined else row.state
