"""Whether what an instance is rented for was rehearsed before."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainmaster.plan.rehearsal import digest_of
from trainmaster.plan.spec import TrainingSpec
from trainmaster.runs.launch.rehearse import has_passed
from trainmaster.sync.workspace import Workspace

_MOST_HOURS = 1.0


def unrehearsed(
    workspace: Workspace, spec: TrainingSpec | None, hours: float
) -> tuple[str, str] | None:
    """The warning of a longer lease that follows no rehearsal, and what identifies it;
    None for a short lease, or after a rehearsal that passed."""
    if hours <= _MOST_HOURS or (spec is not None and has_passed(workspace, spec)):
        return None
    if spec is None:
        rehearse = command("rehearse", "SPEC")
        return (
            f"No training is named for it. {rehearse} first tries one at a tiny width, at no cost; "
            "then name its spec here.",
            "unrehearsed",
        )
    return (
        f"No rehearsal of {spec.name} has passed: {command('rehearse', 'SPEC')} first tries it at "
        "a tiny width, at no cost.",
        f"unrehearsed {digest_of(spec)}",
    )
