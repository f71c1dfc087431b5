"""What people see of a rehearsal."""

from __future__ import annotations

from trainmaster.answers.rehearsal import RehearsalAnswer
from trainmaster.cli.views.blocks import Block, Grid, named, view


@view.register
def _(answer: RehearsalAnswer) -> list[Block]:
    rows = [(check.name, check.verdict, check.detail) for check in answer.checks]
    remedies = [
        f"{check.name}: {check.remedy}" for check in answer.checks if check.remedy is not None
    ]
    width = "tiny " if answer.kind == "tiny" else ""
    return [
        f"{answer.run_id}: a {width}rehearsal of {answer.of} on {answer.host} over {answer.steps} "
        "steps",
        *([Grid(("check", "verdict", "figures"), rows)] if rows else []),
        f"Verdict: {answer.verdict or 'none yet, it is ' + answer.state}",
        *(f"> {line}" for line in answer.evidence or ()),
        *remedies,
        *named("Launched", answer.launched),
        f"Next: {answer.next_step}",
    ]
