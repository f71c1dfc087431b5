"""What people see of an output folder that is adopted."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import number_text, size_text
from trainmaster.answers.adopt import AdoptAnswer
from trainmaster.cli.views.blocks import Block, Grid, named, pairs, view


@view.register
def _(answer: AdoptAnswer) -> list[Block]:
    reasons = {row.path: row.reason for row in answer.skipped}
    rows = [
        (
            "?" if row.step is None else number_text(row.step),
            row.path,
            size_text(row.size_bytes),
            pairs(row.metrics),
            "yes" if row.verified else f"no: {reasons[row.path]}",
        )
        for row in answer.checkpoints
    ]
    begun = f"{answer.run_id}: {answer.state}, attempt {answer.attempt} on {answer.host}"
    return [
        f"{answer.folder}: output of {answer.framework}",
        Grid(("step", "path", "size", "metrics", "verified"), rows),
        *(
            ["Continues from step " + number_text(answer.resume_from)]
            * (answer.resume_from is not None)
        ),
        *([begun] if answer.run_id else []),
        *named("Starting spec", answer.spec),
        *(["The spec:", *answer.spec_text.splitlines()] if answer.spec_text else []),
        *named("To fill in", ", ".join(answer.open or ()) or None),
        *(f"Warning: {warning}" for warning in answer.warnings or ()),
        *(f"Note: {note}" for note in answer.notes or ()),
        *named("Next", answer.next_step),
    ]
