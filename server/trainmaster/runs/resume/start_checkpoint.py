"""The starting point of a resume: which checkpoint, and whether it is usable."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command, option
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.diagnosis.chosen_patch import ChosenPatch, stale
from trainmaster.runs.lists.list_checkpoints import list_checkpoints
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


async def start_of(
    workspace: Workspace, view: RunView, start: str | None, chosen: ChosenPatch | None = None
) -> tuple[str, int | None]:
    """The mode and step of a resume from `start`: the patch's own, else `latest`, where it is None.

    Raises:
        StateError: `NO_CHECKPOINT`, `CHECKPOINT_DAMAGED`; `PATCH_STALE` where the patch's
            checkpoint is gone.
        UsageError: `BAD_ARGUMENT`, also where the patch leaves data out from another step on.
    """
    if chosen is None:
        return await _start(workspace, view, "latest" if start is None else start)
    if start is not None and chosen.patch.skip and start != chosen.start:
        raise UsageError(
            "BAD_ARGUMENT",
            f"Patch {chosen.patch.id} leaves out data from {chosen.start} on.",
            f"Resume from there (leave {option('--from')} out), not from {start}.",
            field="from",
        )
    try:
        return await _start(workspace, view, chosen.start if start is None else start)
    except StateError as error:
        if start is not None or error.code != "NO_CHECKPOINT":
            raise
        raise stale(view, chosen.finding, chosen.patch.id, error.message) from error


def begins_at(view: RunView, mode: str, step: int | None) -> int:
    """The step of the checkpoint that is resumed from."""
    return {"latest": view.index.resume_from or 0, "scratch": 0}.get(mode, step or 0)


def superseded(view: RunView, mode: str, step: int | None) -> list[int]:
    """The verified checkpoints that a resume leaves behind and keeps: see
    `core.checkpoints.superseded`."""
    return view.index.kept_behind(begins_at(view, mode, step))


async def _start(workspace: Workspace, view: RunView, start: str) -> tuple[str, int | None]:
    if start in ("latest", "scratch"):
        return start, None
    if start == "best":
        best = view.index.best
        if best is None:
            raise _no_checkpoint(view, "no verified checkpoint with a validation loss")
        return "step", best
    if not (start.isascii() and start.isdigit()):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{start!r} is not a valid place to resume from.",
            "Use latest, best, scratch or a step.",
            field="from",
        )
    return "step", await _step(workspace, view, int(start))


async def _step(workspace: Workspace, view: RunView, step: int) -> int:
    answer = await list_checkpoints(workspace, view.run.run_id, verify=True)
    listed = [*answer.checkpoints, *(answer.superseded or ())]
    verified = {row.step: row.verified for row in listed}
    if step not in verified:
        steps = ", ".join(str(other) for other in verified) or "none"
        raise _no_checkpoint(view, f"no checkpoint of step {step}; there are: {steps}")
    if not verified[step]:
        raise StateError(
            "CHECKPOINT_DAMAGED",
            f"The checkpoint of step {step} is damaged; "
            f"{command('checkpoints', view.run.run_id, '--verify')} shows where.",
            f"Resume from {answer.resume_from}, the newest that is whole."
            if answer.resume_from is not None
            else "Resume from scratch; none is whole.",
        )
    return step


def _no_checkpoint(view: RunView, what: str) -> StateError:
    return StateError(
        "NO_CHECKPOINT",
        f"Run {view.run.run_id} has {what}.",
        f"{command('checkpoints', view.run.run_id)} lists them; {option('--from', 'latest')} "
        "takes the newest.",
    )
