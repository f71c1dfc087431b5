"""What people see of `plot`."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import number_text, size_text
from trainmaster.answers.plot import PlotAnswer
from trainmaster.cli.views.blocks import Block, view


@view.register
def _(answer: PlotAnswer) -> list[Block]:
    if answer.path is None:
        return list(answer.lines or ())
    points = number_text(sum(answer.runs.values()))
    return [
        f"{answer.path}: {size_text(answer.size_bytes or 0)}, {', '.join(answer.keys)} of "
        f"{', '.join(answer.runs)}, {points} points",
        *(f"Marked: {run}: {'; '.join(marks)}" for run, marks in (answer.marks or {}).items()),
    ]
