"""The next attempt of a resume: its start, its configuration and what it is requested with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import ConfigChanges
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.errors import SpecError, StateError
from trainmaster.plan.changes import Before, changes
from trainmaster.plan.changes.phases import refuse_past
from trainmaster.plan.changes.schedule import rate_in_words
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.diagnosis.chosen_patch import chosen_patch
from trainmaster.runs.resume.remaining_hosts import host_changes
from trainmaster.runs.resume.rented_instance import changes_on
from trainmaster.runs.resume.request import ResumeRequest
from trainmaster.runs.resume.start_checkpoint import begins_at, start_of, superseded
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """`changed`: values of the configuration, by dotted name; `spec`, `document`: the run's with
    them. `note`: what becomes of steps and rate; `superseded`: checkpoints left behind."""

    desired: Desired
    changed: dict[str, Any]
    spec: str
    document: dict[str, Any]
    note: str | None
    superseded: list[int]


async def next_attempt(workspace: Workspace, view: RunView, request: ResumeRequest) -> NextAttempt:
    """Raises:
    TrainmasterError: a start, a patch, a change or a limit that is not possible; see `resume`.
    """
    chosen = None if request.apply is None else chosen_patch(workspace, view, request.apply)
    mode, step = await start_of(workspace, view, request.start, chosen)
    before = _before(workspace, view, continues=mode != "scratch")
    change = changes(before, request.sets, {} if chosen is None else chosen.patch.set)
    on_host = changes_on(workspace, view, view.run.host, change.spec, change.values)
    changed = {**change.values, **on_host}
    document = _document_with(view, changed)
    begins = begins_at(view, mode, step)
    refuse_past(before.newest, changed, request.sets, begins)
    _refuse_if_nothing_is_left(view, begins, changed)
    _refuse_if_time_is_up(view, changed)
    hosts = host_changes(view.run, before.newest) if "nodes" in view.run.document else {}
    desired = Desired(
        DesiredState.RUNNING,
        view.desired.generation + 1,
        mode=mode,
        step=step,
        set={**hosts, **changed},
        skip=None if chosen is None else chosen.patch.skip,
        why="resume" if chosen is None else chosen.why,
    )
    note = rate_in_words(before.newest, changed, begins)
    left = superseded(view, mode, step)
    return NextAttempt(desired, changed, change.spec, document, note, left)


def _before(workspace: Workspace, view: RunView, *, continues: bool) -> Before:
    travels = view.sessions is not None and view.sessions.files_travel
    return Before(
        view.run.spec,
        view.run.plan,
        newest_config(workspace, view),
        continues=continues,
        lends_time=view.run.host if travels else None,
    )


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


def _refuse_if_nothing_is_left(view: RunView, begins: int, changed: ConfigChanges) -> None:
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
    limit_s = changed.get("limits.max_runtime_s", limits["max_runtime_s"])
    limit = math.inf if limit_s is None else float(limit_s)
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
