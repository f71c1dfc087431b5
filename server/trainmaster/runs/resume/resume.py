"""Resumes an ended run from one of its checkpoints, on its host or another."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainer_runtime.core.config import ConfigChanges, ConfigDocument
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.states import DesiredState, RunState
from trainer_runtime.core.records import dataclass
from trainmaster.alerts.destinations import refuse_unknown_destinations
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import SpecError, StateError
from trainmaster.plan.spec import changes_of
from trainmaster.runs.attach import refuse_attached
from trainmaster.runs.diagnosis.attempts import newest_config
from trainmaster.runs.diagnosis.patches import ChosenPatch, all_sets, chosen_patch, with_patch
from trainmaster.runs.events.positions import cursor_of
from trainmaster.runs.events.wait import until_attempt, wait_for_event
from trainmaster.runs.launch import launched
from trainmaster.runs.maintain import deliver
from trainmaster.runs.planning.mirror_path import refuse_unwritable_mirror
from trainmaster.runs.planning.plan_run import plan_again, refuse_where_lease_is_over
from trainmaster.runs.planning.spec_policy import Beyond
from trainmaster.runs.resume.batch import of_one_batch
from trainmaster.runs.resume.checkpoint import start_of, superseded
from trainmaster.runs.resume.migrate import RefreshInstance, migrate, no_instances
from trainmaster.runs.resume.ranks import sets_of_batch
from trainmaster.runs.resume.remaining_hosts import host_changes, refuse_unless_remaining
from trainmaster.runs.resume.rented_instance import changes_on
from trainmaster.runs.resume.replan import asks_for_another_job, renew_job, with_new_job
from trainmaster.runs.resume.resume_policy import Asked, allow_resume
from trainmaster.runs.resume.resumed_schedule import rate_in_words, sets_of_schedule
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.runs import NewConfig
from trainmaster.sync.chosen_run import chosen_run
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView, load_view, refuse_unless_ended, still_running
from trainmaster.sync.workspace import Workspace

# Kept as it was by a resume: the data, and what the host has added to it.
_NEVER_RESENT = ("data", "run_id", "name")
# A stop that is under way is waited for, within what a call may last.
_STOPS_WITHIN_S = 25.0


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    abandon: bool
    refresh_instance: RefreshInstance


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
            start=start,
            sets=sets,
            apply=apply,
            key=key,
            place=None if host is None else _Place(host, abandon, refresh_instance),
            confirm=confirm,
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
    workspace: Workspace,
    run: str,
    *,
    start: str | None,
    sets: Sequence[str],
    apply: str | None,
    key: IdempotencyKey | None,
    place: _Place | None = None,
    confirm: Confirm | None = None,
) -> LaunchAnswer:
    asked = Asked(start, sets, apply, confirm, abandon=place is not None and place.abandon)
    stays = place is not None and place.host == workspace.control.run(run).host
    view, allowed = await _on_target_host(workspace, run, place, asked)
    chosen = None if apply is None else chosen_patch(workspace, view, apply)
    mode, step = await start_of(workspace, view, start, chosen)
    changed, spec = _changed(workspace, view, sets, chosen, continues=mode != "scratch")
    changed |= changes_on(workspace, view, view.run.host, spec, changed)
    named = [alert["to"] for alert in changed.get("alerts", [])]
    document = _document_with(view, changed)
    refuse_unknown_destinations(workspace.home, named)
    _refuse_if_nothing_is_left(view, mode, step, changed)
    _refuse_if_time_is_up(view, changed)
    newest = newest_config(workspace, view)
    rate = rate_in_words(newest, changed, _begins_at(view, mode, step))
    backend = workspace.backend(view.run.host)
    await refuse_unwritable_mirror(backend, changed.get("checkpoint.mirror"))
    desired = Desired(
        DesiredState.RUNNING,
        view.desired.generation + 1,
        mode=mode,
        step=step,
        set={**_of_hosts(workspace, view), **changed},
        skip=None if chosen is None else chosen.patch.skip,
        why="resume" if chosen is None else chosen.why,
    )
    names = changed.get("secrets", view.run.config.secrets)
    secret_values.keep(
        workspace.home,
        view.run.run_id,
        secret_values.find_values(workspace.home, names, os.environ),
    )
    allowed.refuse_changed()
    after = replace(view.run, document=document)
    if stays:
        after = await with_new_job(workspace, after, confirm)
    if asks_for_another_job(view.run, after):
        await renew_job(workspace, after)
    is_new = changed or asks_for_another_job(view.run, after)
    new_config = NewConfig(spec, after.document) if is_new else None
    now = time.time()
    if not workspace.control.request(view.run.run_id, desired, now, key=key, new_config=new_config):
        raise still_running(view.run.run_id, "being started by another process")
    if await deliver(workspace, view.run.run_id) and view.sessions is None:
        await until_attempt(workspace, view.run.run_id)
    answer = launched(workspace, view.run.run_id, cursor_of(view))
    left = superseded(view, mode, step)
    return answer.model_copy(update={"superseded": left or None, "note": rate})


async def _on_target_host(
    workspace: Workspace, run: str, place: _Place | None, asked: Asked
) -> tuple[RunView, Beyond]:
    """The run, on the host where it is to resume, and what its caller was allowed."""
    view = await refresh(workspace, run)
    refuse_attached(view.run, "resumed")
    if view.state is RunState.STOPPING and not (view.sessions and view.sessions.files_travel):
        await wait_for_event(workspace, run, until=("end",), timeout_s=_STOPS_WITHIN_S)
        view = load_view(workspace, run)
    target = view.run.host if place is None else place.host
    refuse_where_lease_is_over(workspace, target, time.time())
    _refuse_cleaned(view)
    if place is None or place.host == view.run.host:
        if not view.record.awaits_choice(view.now):
            refuse_unless_ended(view)
        return view, await allow_resume(workspace, view, target, asked)
    refuse_unless_remaining(view.run, place.host)
    allowed = await allow_resume(workspace, view, target, asked)
    await migrate(
        workspace,
        view,
        place.host,
        from_scratch=asked.start == "scratch",
        abandon=place.abandon,
        refresh_instance=place.refresh_instance,
        newest=newest_config(workspace, view) if view.run.config.compute.nodes > 1 else None,
        confirm=asked.confirm,
    )
    return load_view(workspace, run), allowed


def _document_with(view: RunView, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The run's configuration with these values.

    Raises:
        SpecError: `INVALID_VALUE`, the version that has launched it lacks one of the fields.
    """
    try:
        return apply_sets(view.run.document, changed)
    except PatchError as error:
        raise SpecError(
            "INVALID_VALUE",
            f"Run {view.run.run_id} was launched by a version without this field ({error}).",
            "Leave it out, or launch a new run.",
        ) from error


def _of_hosts(workspace: Workspace, view: RunView) -> dict[str, Any]:
    """The changes for other hosts than those of the last attempt, of a run on several."""
    if "nodes" not in view.run.document:
        return {}
    return host_changes(view.run, newest_config(workspace, view))


def _refuse_cleaned(view: RunView) -> None:
    if view.run.cleaned:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} was cleaned: its files are gone from {view.run.host}.",
            "Launch it again.",
        )


def _changed(
    workspace: Workspace,
    view: RunView,
    sets: Sequence[str],
    chosen: ChosenPatch | None,
    *,
    continues: bool,
) -> tuple[dict[str, Any], str]:
    """The dotted values of the resolved configuration that `sets` and the patch change, and the
    changed spec. `continues`: not from scratch, where the schedule would begin again."""
    asked = all_sets(sets, chosen)
    if not asked:
        return {}, view.run.spec
    for item in asked:
        path = item.partition("=")[0].strip()
        if changes_of(path) == "never":
            raise SpecError(
                "INVALID_VALUE",
                f"`{path}` can't change once the run exists.",
                "Launch a new run with it.",
                field=path,
            )
    newest = newest_config(workspace, view)

    def plan_with(sets: Sequence[str]) -> ConfigDocument:
        return plan_again(view.run.spec, sets, view.run.plan).config

    travels = view.sessions is not None and view.sessions.files_travel
    lends_time = view.run.host if travels else None
    of_batch = sets_of_batch(asked, newest, plan_with, lends_time)
    before = plan_again(view.run.spec, (), view.run.plan)
    after = plan_again(view.run.spec, [*asked, *of_batch], view.run.plan)
    of_schedule = sets_of_schedule(asked, newest, after.config) if continues else []
    if of_schedule:
        kept = [*asked, *of_batch, *of_schedule]
        after = plan_again(view.run.spec, kept, view.run.plan)
    kept_before = _without(before.config, _NEVER_RESENT)
    kept_after = _without(after.config, _NEVER_RESENT)
    found = dict(_differences(kept_before, kept_after, ""))
    found.pop("eval.batch_size", None)  # what is evaluated stays comparable
    named = [item.partition("=")[0].strip() for item in [*sets, *of_batch]]
    patched = {} if chosen is None else chosen.patch.set
    changes = with_patch(found, sets, chosen)
    return of_one_batch(changes, named, patched, after.config, newest), after.spec_text


def _differences(
    before: ConfigDocument, after: ConfigDocument, prefix: str
) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and set(old) == set(value):
            found += _differences(old, value, f"{prefix}{key}.")
        elif old != value:
            found.append((f"{prefix}{key}", value))
    return found


def _without(config: ConfigDocument, names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}


def _begins_at(view: RunView, mode: str, step: int | None) -> int:
    """The step of the checkpoint that is resumed from."""
    newest = view.index.resume_from or 0
    return {"latest": newest, "scratch": 0}.get(mode, step or 0)


def _refuse_if_nothing_is_left(
    view: RunView, mode: str, step: int | None, changed: ConfigChanges
) -> None:
    begins = _begins_at(view, mode, step)
    target = int(changed.get("steps", view.run.config.steps) or 0)
    if 0 < target <= begins:  # a program that ends by itself has none
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} has {target} steps to do, and step {begins} is done.",
            f"Add steps ({option('--set', 'steps=N')}), or start from an earlier "
            f"checkpoint ({option('--from', 'STEP')}).",
        )


def _refuse_if_time_is_up(view: RunView, changed: ConfigChanges) -> None:
    limits = changed.get("limits") or {"max_runtime_s": view.run.config.limits.max_runtime_s}
    found = changed.get("limits.max_runtime_s", limits["max_runtime_s"])
    limit = math.inf if found is None else float(found)
    spent = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    if spent >= limit:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} has used up its time: {spoken_duration(spent)} over all "
            f"attempts, of {spoken_duration(limit)}.",
            f"Allow more ({option('--set', 'limits.max_runtime=12h')}); it counts from "
            "the first attempt on.",
            field="limits.max_runtime",
        )
