"""Resumes an ended run from one of its checkpoints, on its host or another."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainer_runtime.core.protocol.states import RunState
from trainmaster.alerts.destinations import refuse_unknown_destinations
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import StateError
from trainmaster.plan.changes import sets_with_patch
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.attach import refuse_attached
from trainmaster.runs.diagnosis.chosen_patch import ChosenPatch, chosen_patch
from trainmaster.runs.events.positions import cursor_of
from trainmaster.runs.events.wait import until_attempt, wait_for_event
from trainmaster.runs.launch.launch import launched
from trainmaster.runs.planning.mirror_path import refuse_unwritable_mirror
from trainmaster.runs.planning.plan_run import refuse_where_lease_is_over
from trainmaster.runs.planning.spec_policy import NOTHING_BEYOND, Beyond, allow, beyond_policy
from trainmaster.runs.resume.migrate import migrate
from trainmaster.runs.resume.next_attempt import (
    RefreshInstance,
    ResumeRequest,
    next_attempt,
    no_instances,
)
from trainmaster.runs.resume.remaining_hosts import refuse_unless_remaining
from trainmaster.runs.resume.replan import asks_for_another_job, renew_job, with_new_job
from trainmaster.runs.resume.start_checkpoint import superseded
from trainmaster.runs.upkeep.maintain import deliver
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.runs import NewConfig
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, load_view, refuse_unless_ended, still_running
from trainmaster.sync.workspace import Workspace

_SCRATCH = "scratch"
# A stop that is under way is waited for, within what a call may last.
_STOPS_WITHIN_S = 25.0


async def resume(
    workspace: Workspace,
    run: str,
    *,
    start: str | None = None,
    sets: Sequence[str] = (),
    apply: str | None = None,
    host: str | None = None,
    abandon: bool = False,
    refresh_instance: RefreshInstance = no_instances,
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
) -> LaunchAnswer:
    """Start an ended run again from a checkpoint, with the last attempt's configuration.

    The end of a run that is stopping is awaited for a while.

    `host`: the host to resume on, from the mirror; the run has to have ended on its old host, or
    its rented instance to be gone, unless `abandon`. Its own, a cluster: its jobs ask for what the
    host's options are now.

    `start`: `latest` (the newest that verifies; the default), `best`, `scratch`, or a step. `sets`
    change fields that may change on a resume. `apply`: `FINDING[:PATCH]`, whose changes, place to
    start from and data to leave out are taken. `confirm`: who allows an agent to supersede
    verified checkpoints, and what lies beyond its policy.

    Raises:
        StateError: `RUN_NOT_FOUND`, `RUN_IS_RUNNING`, `RUN_ENDED` (nothing is left to do),
            `NO_CHECKPOINT`, `CHECKPOINT_DAMAGED`, `FINDING_UNKNOWN`, `PATCH_UNKNOWN`,
            `PATCH_STALE`.
        SpecError: a field that doesn't exist or may not change.
        UsageError: `BAD_ARGUMENT`, `IDEMPOTENCY_CONFLICT`.
        HostError: `LEASE_OVER`, the host is rented, and not for long any more.
        SpendError: `SPEND_CAP`, its budget is used up; `CONFIRMATION_REQUIRED`,
            `CONFIRMATION_DECLINED`.
        PolicyError: the changed spec, or the host, is beyond the agent's policy.
    """
    key = None
    if idempotency_key:
        request = _keyed_request(run, start, sets, apply, host)
        key = IdempotencyKey(idempotency_key, "resume", json.dumps(request))
    try:
        return _earlier_result(workspace, key) or await _resume(
            workspace,
            chosen_run(workspace, run).run_id,
            ResumeRequest(start, sets, apply, confirm, host, abandon, refresh_instance),
            key,
        )
    except StateError:
        # The first call with this key may have finished in the meantime.
        earlier = _earlier_result(workspace, key)
        if earlier is None:
            raise
        return earlier


def _keyed_request(
    run: str, start: str | None, sets: Sequence[str], apply: str | None, host: str | None
) -> list[Any]:
    """What a key stands for, as it was before patches existed: the same key keeps its meaning."""
    request: list[Any] = [run, start or "latest", list(sets)]
    request += [] if apply is None else [apply]
    return request + ([] if host is None else [{"host": host}])


def _earlier_result(workspace: Workspace, key: IdempotencyKey | None) -> LaunchAnswer | None:
    """What the first call with this key has led to."""
    run_id = None if key is None else workspace.control.keys.result(key)
    return launched(workspace, run_id) if run_id is not None else None


async def _resume(
    workspace: Workspace, run: str, request: ResumeRequest, key: IdempotencyKey | None
) -> LaunchAnswer:
    stays = request.host is not None and request.host == workspace.control.run(run).host
    view, allowed = await on_target_host(workspace, run, request)
    attempt = await next_attempt(workspace, view, request)
    changed = attempt.changed
    named = [alert["to"] for alert in changed.get("alerts", [])]
    refuse_unknown_destinations(workspace.home, named)
    backend = workspace.backend(view.run.host)
    await refuse_unwritable_mirror(backend, changed.get("checkpoint.mirror"))
    names = changed.get("secrets", view.run.config.secrets)
    secret_values.keep(
        workspace.home,
        view.run.run_id,
        secret_values.find_values(workspace.home, names, os.environ),
    )
    allowed.refuse_changed()
    after = replace(view.run, document=attempt.document)
    if stays:
        after = await with_new_job(workspace, after, request.confirm)
    is_another_job = asks_for_another_job(view.run, after)
    if is_another_job:
        await renew_job(workspace, after)
    new_config = NewConfig(attempt.spec, after.document) if changed or is_another_job else None
    if not workspace.control.request(
        view.run.run_id, attempt.desired, time.time(), key=key, new_config=new_config
    ):
        raise still_running(view.run.run_id, "being started by another process")
    if await deliver(workspace, view.run.run_id) and view.sessions is None:
        await until_attempt(workspace, view.run.run_id)
    answer = launched(workspace, view.run.run_id, cursor_of(view))
    more = {"superseded": attempt.superseded or None, "note": attempt.note}
    return answer.model_copy(update=more)


async def on_target_host(
    workspace: Workspace, run: str, request: ResumeRequest
) -> tuple[RunView, Beyond]:
    """The run, on the host where it is to resume, and what its caller was allowed. A stop that is
    under way is awaited.

    Raises:
        TrainmasterError: it can't resume there, or not yet.
    """
    view = await refresh(workspace, run)
    refuse_attached(view.run, "resumed")
    if view.state is RunState.STOPPING and not (view.sessions and view.sessions.files_travel):
        await wait_for_event(workspace, run, until=("end",), timeout_s=_STOPS_WITHIN_S)
        view = load_view(workspace, run)
    target = request.host or view.run.host
    refuse_where_lease_is_over(workspace, target, time.time())
    _refuse_cleaned(view)
    if target == view.run.host:
        if not view.record.awaits_choice(view.now):
            refuse_unless_ended(view)
        return view, await allow_resume(workspace, view, target, request)
    refuse_unless_remaining(view.run, target)
    allowed = await allow_resume(workspace, view, target, request)
    await migrate(workspace, view, target, request)
    return load_view(workspace, run), allowed


def _refuse_cleaned(view: RunView) -> None:
    if view.run.cleaned:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} was cleaned: its files are gone from {view.run.host}.",
            "Launch it again.",
        )


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
