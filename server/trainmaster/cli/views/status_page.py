"""What people see of a run's status page."""

from __future__ import annotations

from trainmaster.cli.views.blocks import Block, view
from trainmaster.runs.status.status_page import PageAnswer


@view.register
def _(answer: PageAnswer) -> list[Block]:
    return list(answer.page.splitlines())
