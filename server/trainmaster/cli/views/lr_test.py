"""What people see of `lr-test`."""

from __future__ import annotations

import json

from trainer_runtime.core.protocol.figures import number_text
from trainmaster.answers.lr_test import LrTestAnswer
from trainmaster.cli.views.blocks import Block, Grid, steps, view


@view.register
def _(answer: LrTestAnswer) -> list[Block]:
    rows = [
        (number_text(rate), number_text(loss))
        for rate, loss in zip(answer.rates, answer.losses, strict=True)
    ]
    drawn = [f"Plot: {answer.path}"] if answer.path is not None else list(answer.lines or ())
    return [
        f"{answer.run_id}: {steps(answer.steps, answer.target_steps)} steps",
        *([Grid(("learning rate", "mean loss"), rows)] if rows else []),
        *drawn,
        *_suggestion(answer),
        f"Next: {answer.next_step}",
    ]


def _suggestion(answer: LrTestAnswer) -> list[Block]:
    if answer.lr is None:
        return ["No rate is suggested: the loss did not fall."]
    ends = (
        f"The loss fell fastest at {number_text(answer.steepest)}, and was lowest at "
        f"{number_text(answer.lowest)}."
    )
    changes = ", ".join(
        f"{path}: {json.dumps((answer.expected or {}).get(path))} -> {json.dumps(new)}"
        for path, new in (answer.set or {}).items()
    )
    return [f"Suggested: {number_text(answer.lr)}, {answer.rule}.", ends, f"Patch: {changes}"]
