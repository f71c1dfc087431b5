"""What people see of texts that a model wrote."""

from __future__ import annotations

from trainmaster.cli.views.blocks import Block, named, view
from trainmaster.cli.views.status import sample
from trainmaster.words.answers.samples import SamplesAnswer


@view.register
def _(answer: SamplesAnswer) -> list[Block]:
    head = f"{answer.run_id}, {answer.path} on {answer.device}" if answer.path else answer.run_id
    return [
        head,
        *(block for one in answer.samples for block in sample(one)),
        *named("Next", answer.next_step),
    ]
