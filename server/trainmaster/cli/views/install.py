"""What people see of `trainmaster install`."""

from __future__ import annotations

from trainmaster.answers.install import InstallAnswer
from trainmaster.cli.views.blocks import Block, view


@view.register
def _(answer: InstallAnswer) -> list[Block]:
    if not answer.changed:
        return [f"{answer.client} has the server and skills already: {answer.config}"]
    if not answer.written:
        blocks = [f"{answer.client}: {answer.config} would get", f"  trainmaster: {answer.entry}"]
        return [*blocks, *(f"  skill {path}" for path in answer.skills or [])]
    return [
        f"Added the server to {answer.config}.",
        *(f"Added the skill {path}." for path in answer.skills or []),
        f"Start {answer.client} again; then ask it to train something.",
    ]
