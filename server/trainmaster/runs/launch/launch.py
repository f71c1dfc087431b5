"""Launches a planned spec as a detached training."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState, RunState
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.advice import waiting_from
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import HostError
from trainmaster.home.run_names import is_of_line
from trainmaster.plan.planned import Planned, refuse_unlaunchable, with_notes
from trainmaster.runs.diagnosis.tried_patches import applied_patch
from trainmaster.runs.events.positions import BEGINNING
from trainmaster.runs.events.wait import until_attempt
from trainmaster.runs.launch.record_run import record_run
from trainmaster.runs.planning import plan_run
from trainmaster.runs.planning.mirror_path import refuse_unwritable_mirror
from trainmaster.runs.planning.probe_image import try_image
from trainmaster.runs.status.next_step import next_step, saves_checkpoints
from trainmaster.runs.status.status import resumes_at
from trainmaster.runs.upkeep.advance import advance
from trainmaster.store import secret_values
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.control.runs import KAGGLE_LAUNCHER
from trainmaster.store.run import Run
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace

LastCheck = Callable[[Planned], Awaitable[Planned]]


async def launch(
    workspace: Workspace,
    spec: str,
    *,
    host: str | None = None,
    sets: Sequence[str] = (),
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
    last_check: LastCheck | None = None,
    variant: str | None = None,
    trace: bool = False,
) -> LaunchAnswer:
    """Start a training, detached. The same `idempotency_key` again returns the first call's run.
    `confirm`: who allows what lies beyond the caller's policy. `last_check`: gives what is started
    instead of the plan, or refuses it; `variant` names which. `trace`: as in `plan_spec`.

    Raises:
        TrainmasterError: the launch is impossible; nothing was started.
    """
    named = [spec, host, list(sets), *([variant] if variant else [])]
    asked = hashlib.sha256(json.dumps(named).encode()).hexdigest()
    key = IdempotencyKey(idempotency_key, "launch", asked) if idempotency_key else None
    earlier = None if key is None else workspace.control.keys.result(key)
    if earlier is not None:
        await advance(workspace, earlier)
        return launched(workspace, earlier)
    planned = await plan_run.plan_spec(workspace, spec, host, sets, confirm=confirm, trace=trace)
    refuse_unlaunchable(planned)
    plan_run.refuse_changed(planned)
    if last_check is not None:
        planned = await last_check(planned)
    run_id = await start_run(workspace, planned, Desired(DesiredState.RUNNING, generation=1), key)
    if run_id is None:  # the same key, at the same moment, in another process
        return await launch(
            workspace,
            spec,
            host=host,
            sets=sets,
            idempotency_key=idempotency_key,
            confirm=confirm,
            last_check=last_check,
            variant=variant,
            trace=trace,
        )
    return launched(workspace, run_id)


async def start_run(
    workspace: Workspace, planned: Planned, desired: Desired, key: IdempotencyKey | None = None
) -> str | None:
    """Record a planned run and start it; its id, None where the key was just taken.

    To a host that is lost on the way the request is delivered when it can be.

    Raises:
        HostError: the host refuses; then nothing was started.
    """
    backend = workspace.backend(planned.spec.host)
    await refuse_unwritable_mirror(backend, planned.spec.checkpoint.mirror)
    image_warnings = await try_image(backend, planned.config, planned.plan.requirements)
    run = await _record(workspace, with_notes(planned, warnings=image_warnings), desired, key)
    if run is None:
        return None
    enter_stage(f"sending {run.run_id} to {run.host}")
    try:
        await advance(workspace, run.run_id)
    except HostError as error:
        # The host answered when the run was planned: the request may have arrived.
        if not error.unanswered:
            await rollback(workspace, run)
            raise
        return run.run_id  # placed or not: it is started once possible
    if load_view(workspace, run.run_id).sessions is None:  # sessions start in their turn
        await until_attempt(workspace, run.run_id)
    return run.run_id


def launched(workspace: Workspace, run_id: str, cursor: str = str(BEGINNING)) -> LaunchAnswer:
    """The answer of a call that has started a run; `cursor`: the position before it."""
    view = load_view(workspace, run_id)
    until = "checkpoint,end" if saves_checkpoints(view.run) else "finding,end"
    begins = resumes_at(view)
    waits = command("wait", run_id, "--until", until, "--timeout", "3600")
    return LaunchAnswer(
        run_id=run_id,
        name_taken=_name_taken(view.run),
        name=view.run.name,
        state=view.state.value,
        reason=view.reason if view.state is RunState.QUEUED else None,
        resumes_at=begins,
        attempt=view.attempt,
        host=view.run.host,
        pending=None if view.delivered else True,
        cursor=cursor,
        applied=applied_patch(view.desired.why),
        warnings=warnings_of(workspace, view),
        next_step=waiting_from(cursor, waits if begins is None else next_step(view, ())),
    )


def _name_taken(run: Run) -> str | None:
    """That a run has another name than it was launched under, as that one exists."""
    try:
        wanted = json.loads(run.spec).get("name")
    except (ValueError, AttributeError):
        return None
    if not wanted or not is_of_line(wanted, run.name, run.spec) or wanted == run.name:
        return None
    return f"{wanted} exists: this run is {run.name}."


def warnings_of(workspace: Workspace, view: RunView) -> list[str] | None:
    """The plan's warnings, for a run that was just launched; and what was not found out before its
    job was queued."""
    planned = view.run.plan.get("warnings") or [] if view.desired.why == "launch" else []
    return [*planned, *_untried_folder(workspace, view)] or None


def _untried_folder(workspace: Workspace, view: RunView) -> list[str]:
    """A warning where nobody knows whether a run's nodes have its folder, and no job of it has
    begun."""
    if view.attempt or view.run.document.get("slurm") is None:
        return []
    words = workspace.control.slurm.untried(view.run.run_id)
    if words is None:
        return []
    return [
        f"Whether compute nodes of {view.run.host} share its root is not known yet: none could be "
        f"asked ({words}). Where they don't, the run's first job fails at once (folder_missing)."
    ]


async def rollback(workspace: Workspace, run: Run) -> None:
    """Delete the record of a run that is not on its host, unless another process is placing it.

    What sessions would have been given lies here, and its secrets at Kaggle: they go, too.
    """
    lock = try_lock(workspace.home.advance_lock(run.run_id))
    if lock is not None:
        try:
            if workspace.control.forget_unplaced(run.run_id):
                secret_values.forget(workspace.home, run.run_id)
                backend = workspace.backend(run.host)
                if backend.launcher_name == KAGGLE_LAUNCHER:
                    with suppress(HostError):
                        await backend.remove(run.run_id, ())
        finally:
            os.close(lock)


async def _record(
    workspace: Workspace, planned: Planned, desired: Desired, key: IdempotencyKey | None
) -> Run | None:
    values = secret_values.find_values(workspace.home, planned.spec.secrets, os.environ)
    return await record_run(
        workspace,
        planned.spec.name,
        lambda run_id, name: new_run(planned, run_id, name),
        desired,
        key,
        secrets=values,
    )


def new_run(planned: Planned, run_id: str, name: str) -> Run:
    """The record of a planned run."""
    return Run(
        run_id=run_id,
        name=name,
        created_t=time.time(),
        host=planned.spec.host,
        spec=planned.spec_text,
        document={**planned.config, "run_id": run_id, "name": name},
        plan=plan_run.on_record(planned),
        labels=planned.spec.labels,
    )
