"""The next attempt of a resume: its start, its configuration and what it is requested with."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import ConfigChanges
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import spoken_duration, usd_text
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import SpecError, SpendError, StateError
from trainmaster.plan.changes import Before, changes
from trainmaster.plan.changes.phases import refuse_past
from trainmaster.plan.changes.schedule import rate_in_words
from trainmaster.plan.spec import NO_MIRROR
from trainmaster.runs.diagnosis.attempt_changes import newest_config
from trainmaster.runs.diagnosis.chosen_patch import chosen_patch
from trainmaster.runs.resume.remaining_hosts import host_changes
from trainmaster.runs.resume.start_checkpoint import begins_at, start_of, superseded
from trainmaster.runs.status.cost import spans_of, usd_of
from trainmaster.store.control.instances import RentedInstance
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

# Of a rented instance, by its tag: `machines.renting.instances.advance_instance`.
RefreshInstance = Callable[[Workspace, str], Awaitable[object]]
_HOUR_S = 3600.0
_TOLERANCE_S = 1.0


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


def changes_on(
    workspace: Workspace, view: RunView, host: str, spec: str, changed: ConfigChanges
) -> dict[str, Any]:
    """By dotted field: a time limit for the rest of the budget, and a mirror for the checkpoints.
    `spec`: the new one; `changed`: the resume's other changes.

    Raises:
        SpendError: `SPEND_CAP`, the budget is used up.
    """
    instance = workspace.control.instances.by_host(host)
    if instance is None:
        return {}
    return {**_limit_by_budget(workspace, view, instance, changed), **_mirror(view, spec, changed)}


def _mirror(view: RunView, spec: str, changed: ConfigChanges) -> dict[str, Any]:
    """A run planned for an owned host may have no mirror for its checkpoints."""
    mirror = (json.loads(spec).get("checkpoint") or {}).get("mirror")
    current = changed.get("checkpoint.mirror", view.run.config.checkpoint.mirror)
    return {} if NO_MIRROR in (mirror, current) or current else {"checkpoint.mirror": "operator"}


def _limit_by_budget(
    workspace: Workspace, view: RunView, instance: RentedInstance, changed: ConfigChanges
) -> dict[str, Any]:
    """The rest of the budget, after the cost on earlier instances, at this instance's price."""
    limits = view.run.config.limits
    budget_usd = changed.get("limits.budget_usd", limits.budget_usd)
    if budget_usd is None or not instance.usd_per_h:
        return {}
    instances = workspace.control.instances.all()
    left_usd = budget_usd - usd_of(spans_of(workspace, view.run), instances, view.now)
    if left_usd <= 0:
        raise SpendError(
            "SPEND_CAP",
            f"Run {view.run.run_id} has used up the {usd_text(budget_usd)} of limits.budget_usd.",
            f"Raise it: {option('--set', 'limits.budget_usd=…')}; it counts from the "
            "first attempt.",
            field="limits.budget_usd",
        )
    lived_s = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    bought_s = lived_s + left_usd / instance.usd_per_h * _HOUR_S
    limit_s = changed.get("limits.max_runtime_s", limits.max_runtime_s)
    is_within = limit_s is not None and limit_s <= bought_s + _TOLERANCE_S
    return {} if is_within else {"limits.max_runtime_s": bought_s}


async def no_instances(workspace: Workspace, tag: str) -> object:
    """For callers without rented instances."""
    return None


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What is to change, where the run is to resume, and who allows what is beyond the policy.

    `host`: None for where it is; `abandon`: also where its old host may still train it.
    """

    start: str | None
    sets: Sequence[str]
    apply: str | None
    confirm: Confirm | None
    host: str | None = None
    abandon: bool = False
    refresh_instance: RefreshInstance = no_instances
