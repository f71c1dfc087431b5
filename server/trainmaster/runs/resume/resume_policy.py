"""Holds a resume to its caller's policy: another host, changed fields, superseded checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.plan.changes import sets_with_patch
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.diagnosis.chosen_patch import ChosenPatch, chosen_patch
from trainmaster.runs.planning.spec_policy import NOTHING_BEYOND, Beyond, allow, beyond_policy
from trainmaster.runs.resume.request import ResumeRequest
from trainmaster.runs.resume.start_checkpoint import superseded
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_SCRATCH = "scratch"


async def allow_resume(
    workspace: Workspace, view: RunView, host: str, request: ResumeRequest
) -> Beyond:
    """Check a resume before anything is done for it; what the run was launched with is not asked
    again on the same host, but for code that no person has trusted and for paths that lead
    elsewhere by now. The result holds the code to what it was.

    Raises:
        PolicyError: what is requested is beyond the policy.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    if not workspace.policy.bound:
        return NOTHING_BEYOND
    chosen = None if request.apply is None else chosen_patch(workspace, view, request.apply)
    of_patch = sets_with_patch((), {} if chosen is None else chosen.patch.set)
    after = _on(host, view.run.spec, [*of_patch, *request.sets])
    before = NOTHING_BEYOND
    if host == view.run.host:  # to another one, the run's files are sent again
        before = beyond_policy(workspace, _on(host, view.run.spec))
    beyond = beyond_policy(workspace, after).without(before, view.run.plan.get("places") or {})
    named = view.run.run_id if host == view.run.host else f"{view.run.run_id} on {host}"
    questions = _of_superseded(view, request.start, chosen)
    changes = (list(request.sets), request.apply, None if chosen is None else of_patch)
    approved = (host, request.start, request.abandon, *changes)
    await allow(
        workspace, beyond, "resume", named, request.confirm, besides=questions, request=approved
    )
    beyond.refuse_changed()
    return beyond


def _of_superseded(view: RunView, start: str | None, chosen: ChosenPatch | None) -> list[str]:
    """The question about a start before verified checkpoints; not where a patch chose it, as the
    host's recovery would, but from scratch always."""
    wanted = start or (_SCRATCH if chosen is not None and chosen.start == _SCRATCH else "latest")
    if wanted == _SCRATCH:
        mode, step = _SCRATCH, None
    elif wanted == "best" or (wanted.isascii() and wanted.isdigit()):
        mode, step = "step", view.index.best if wanted == "best" else int(wanted)
    else:
        return []
    left = superseded(view, mode, step)
    if not left:
        return []
    place = "scratch" if mode == _SCRATCH else f"step {step}"
    return [f"start from {place}, which supersedes the verified checkpoints up to step {max(left)}"]


def _on(host: str, spec: str, sets: Sequence[str] = ()) -> TrainingSpec:
    """The recorded spec of a run, changed, for a host."""
    return load_spec(f"{spec}\n", sets).model_copy(update={"host": host})
