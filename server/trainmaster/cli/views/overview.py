"""What people see of an overview."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.overview import OverviewAnswer
from trainmaster.cli.views.blocks import Block, view


@view.register
def _(answer: OverviewAnswer) -> list[Block]:
    blocks = [
        *_titled("Attention", answer.attention),
        *_titled("Open", answer.running),
        *_titled("Ended", answer.ended),
    ]
    return [
        *(blocks or ["No runs."]),
        f"Next: {answer.next_step}",
        f"{command('--help')} lists the commands.",
    ]


def _titled(title: str, lines: Sequence[str]) -> list[Block]:
    return [f"{title}:", *(f"- {line}" for line in lines)] if lines else []
