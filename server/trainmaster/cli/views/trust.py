"""What people see of `trainmaster trust`."""

from __future__ import annotations

from trainmaster.answers.trust import TrustAnswer
from trainmaster.cli.views.blocks import Block, view


@view.register
def _(answer: TrustAnswer) -> list[Block]:
    return [f"Trusted {answer.path}, in its present content (SHA-256 {answer.sha256[:16]}…)."]
