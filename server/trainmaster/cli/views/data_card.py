"""What people see of a run's data card."""

from __future__ import annotations

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.inputs.data_card import DataCard, render_card
from trainer_runtime.core.protocol.figures import share_text
from trainmaster.answers.data_card import DataCardAnswer
from trainmaster.cli.views.blocks import Block, view


@view.register
def _(answer: DataCardAnswer) -> list[Block]:
    page = render_card(DataCard.of(Fields(answer.card, answer.run_id))).splitlines()
    realised = [
        f"- {phase}: {', '.join(f'{name} {share_text(share, 1)}' for name, share in mix.items())}"
        for phase, mix in (answer.realised or {}).items()
    ]
    return [*page, *(["", "## Realised mix", "", *realised] if realised else [])]
