"""What people see of averaged checkpoints."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import size_text
from trainmaster.answers.averages import AveragedAnswer
from trainmaster.cli.views.blocks import Block, named, view


@view.register
def _(answer: AveragedAnswer) -> list[Block]:
    return [
        f"{answer.run_id}: {answer.path}/ is the mean of "
        f"{sum(map(len, answer.steps.values()))} checkpoints, {size_text(answer.size_bytes)}",
        *(
            f"Of {run_id}: step {', '.join(map(str, steps))}"
            for run_id, steps in answer.steps.items()
        ),
        *named("Folder", answer.folder),
        *named("Next", answer.next_step),
    ]
