"""What people see of texts that a model wrote."""

from __future__ import annotations

from trainmaster.answers.samples import SamplesAnswer
from trainmaster.cli.views.blocks import Block, named, view
from trainmaster.cli.views.status import sample


@view.register
def _(answer: SamplesAnswer) -> list[Block]:
    texts = f"{len(answer.samples)} texts" if answer.samples else "no text"
    head = f"{answer.run_id}: {texts} recorded during the training"
    if answer.path:
        step = f" of step {answer.step}" if answer.path == "final" else ""
        head = f"{answer.run_id}, {answer.path}{step} on {answer.device}"
    return [
        head,
        *(block for drawn in answer.samples for block in sample(drawn)),
        *named("Next", answer.next_step),
    ]
