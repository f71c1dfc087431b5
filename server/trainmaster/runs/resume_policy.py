"""Holds a resume to its caller's policy: another host, changed fields, superseded checkpoints."""

from __future__ import annotations

import json

from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.planning.spec_policy import allow, beyond_policy
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.words.confirmation import Confirm, Quote


async def allow_host(workspace: Workspace, run: str, host: str, confirm: Confirm | None) -> None:
    """Check that a run, with its code and secrets, may go to another host.

    Raises:
        PolicyError: `POLICY_HOST`, `POLICY_SECRET`, `POLICY_PROGRAM`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    known = workspace.control.run(run)
    if not workspace.policy.bound or known.host == host or known.is_attached:
        return
    here = _on(known.host, known.spec)
    beyond = beyond_policy(workspace, _on(host, known.spec)).without(beyond_policy(workspace, here))
    await allow(workspace, beyond, "resume", f"{known.run_id} on {host}", confirm)


async def allow_changes(
    workspace: Workspace, view: RunView, changed_spec: str, confirm: Confirm | None
) -> None:
    """Check what a resume changes of the spec; what the run was launched with is not asked again.

    Raises:
        PolicyError: a field names what is beyond the policy.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    if not workspace.policy.bound or changed_spec == view.run.spec:
        return
    before, after = (_on(view.run.host, spec) for spec in (view.run.spec, changed_spec))
    beyond = beyond_policy(workspace, after).without(beyond_policy(workspace, before))
    await allow(workspace, beyond, "resume", view.run.run_id, confirm)


async def allow_superseding(
    workspace: Workspace, view: RunView, mode: str, step: int | None, confirm: Confirm | None
) -> None:
    """Have a person agree that an agent starts before the newest verified checkpoint.

    Raises:
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    newest = view.index.resume_from
    begins = 0 if mode == "scratch" else step
    if not workspace.policy.bound or newest is None or begins is None or begins >= newest:
        return
    if confirm is None:
        return
    later = [entry.step for entry in view.index.entries if entry.verified and entry.step > begins]
    text = (
        f"Resume {view.run.run_id} from {'scratch' if mode == 'scratch' else f'step {begins}'}: "
        f"{len(later)} verified checkpoints up to step {newest} would be superseded."
    )
    await confirm(Quote("resume", json.dumps([view.run.run_id, begins, later]), text))


def _on(host: str, spec: str) -> TrainingSpec:
    """The recorded spec of a run, for a host."""
    return load_spec(f"{spec}\n").model_copy(update={"host": host})
