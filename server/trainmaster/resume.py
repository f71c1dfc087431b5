"""Stopping, resuming and cleaning up: requests that outlive whoever makes them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainer_runtime.core.desired import DEFAULT_GRACE_S, Desired
from trainer_runtime.core.duration import spoken_duration
from trainer_runtime.core.patch import apply_sets
from trainer_runtime.core.states import DesiredState, RunState
from trainmaster import secret_values
from trainmaster.advance import look_for_alerts, look_in
from trainmaster.alerting.delivery import take_over_alerts
from trainmaster.alerting.destinations import refuse_unknown_destinations
from trainmaster.answers import CleanAnswer, LaunchAnswer, StopAnswer
from trainmaster.attaching import detach, refuse_attached
from trainmaster.checkpoint_mirror import is_mirrored_here, mirrored_step
from trainmaster.diagnosis.attempts import newest_config
from trainmaster.diagnosis.patches import (
    ChosenPatch,
    all_sets,
    chosen_patch,
    with_patch,
)
from trainmaster.errors import SpecError, StateError, UsageError
from trainmaster.launch import launched
from trainmaster.planning import plan_again
from trainmaster.query import current_view, status_of
from trainmaster.resume_batch import of_one_batch
from trainmaster.resume_start import start_of
from trainmaster.second_place import refuse_unwritable_mirror
from trainmaster.spec import changes_of
from trainmaster.view import RunView, load_view
from trainmaster.wait import cursor_of, until_attempt, until_closed
from trainmaster.workspace import Workspace

_KEPT = ("best", "final")
# A stop goes on record soon, however long the host is looked for.
_LOOK_FIRST_S = 5.0
# Of the plan again, what a resume leaves as it was: the data, and what the box has added to it.
_NEVER_RESENT = ("data", "run_id", "name")


async def stop(workspace: Workspace, run: str, *, grace_s: float | None = None) -> StopAnswer:
    """Have a run save and end; the request stands until it is delivered. May be repeated.

    Raises:
        StateError: `RUN_NOT_FOUND`.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_FIRST_S):
            await current_view(workspace, run)
    view = load_view(workspace, run)
    refuse_attached(view.run, "stopped")
    run_id = view.run.run_id
    while not view.ended and view.desired.state is not DesiredState.STOPPED:
        desired = Desired(
            DesiredState.STOPPED,
            view.desired.generation + 1,
            why="stop",
            grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        )
        workspace.control.request(run_id, desired, time.time())
        view = load_view(workspace, run_id)
    await _deliver(workspace, run_id)
    view = load_view(workspace, run_id)
    wait = f"trainmaster wait {run_id} --until end --timeout 600"
    return StopAnswer(
        run_id=run_id,
        state=view.state.value,
        pending=None if view.delivered else True,
        next_step=status_of(view).next_step if view.ended else wait,
    )


async def resume(
    workspace: Workspace,
    run: str,
    *,
    start: str | None = None,
    sets: Sequence[str] = (),
    apply: str | None = None,
    idempotency_key: str | None = None,
) -> LaunchAnswer:
    """Start an ended run again from a checkpoint, with the last attempt's configuration.

    `start`: `latest` (the newest that verifies; the default), `best`, `scratch`, or a step. `sets`
    change fields that may change on a resume. `apply`: `FINDING[:PATCH]`, whose changes, place to
    start from and data to leave out are taken.

    Raises:
        StateError: `RUN_NOT_FOUND`, `RUN_IS_RUNNING`, `RUN_ENDED` (nothing is left to do),
            `NO_CHECKPOINT`, `CHECKPOINT_DAMAGED`, `FINDING_UNKNOWN`, `PATCH_UNKNOWN`,
            `PATCH_STALE`.
        SpecError: a field that doesn't exist or may not change.
        UsageError: `BAD_ARGUMENT`, `IDEMPOTENCY_CONFLICT`.
    """
    # As it was asked for before patches were: the same key goes on meaning the same.
    asked = [run, start or "latest", list(sets), *([apply] if apply is not None else [])]
    key = (idempotency_key, json.dumps(asked)) if idempotency_key else None
    try:
        return _known(workspace, key) or await _resume(
            workspace, run, start=start, sets=sets, apply=apply, key=key
        )
    except StateError:
        # The first call with this key may have come through in the meantime.
        known = _known(workspace, key)
        if known is None:
            raise
        return known


async def _deliver(workspace: Workspace, run_id: str) -> bool:
    """Have the host told of the newest request; False where that has to wait, within bounds."""
    await look_in(workspace, run_id)
    return workspace.control.desired(run_id)[1]


def _known(workspace: Workspace, key: tuple[str, str] | None) -> LaunchAnswer | None:
    """What the first call with this key has led to."""
    run_id = workspace.control.run_of_key(key[0], "resume", key[1]) if key else None
    return launched(workspace, run_id) if run_id is not None else None


async def _resume(
    workspace: Workspace,
    run: str,
    *,
    start: str | None,
    sets: Sequence[str],
    apply: str | None,
    key: tuple[str, str] | None,
) -> LaunchAnswer:
    view = await current_view(workspace, run)
    refuse_attached(view.run, "resumed")
    if not view.record.awaits_choice(view.now):
        _refuse_unless_ended(view)
    _refuse_cleaned(view)
    chosen = None if apply is None else chosen_patch(workspace, view, apply)
    mode, step = await start_of(workspace, view, start, chosen)
    changed, spec = _changed(workspace, view, sets, chosen)
    told = [alert["to"] for alert in changed.get("alerts", [])]
    refuse_unknown_destinations(workspace.home, told)
    _refuse_if_nothing_is_left(view, mode, step, changed)
    _refuse_if_time_is_up(view, changed)
    backend = workspace.backend(view.run.host)
    await refuse_unwritable_mirror(backend, changed.get("checkpoint.mirror"))
    desired = Desired(
        DesiredState.RUNNING,
        view.desired.generation + 1,
        mode=mode,
        step=step,
        set=changed,
        skip=None if chosen is None else chosen.patch.skip,
        why="resume" if chosen is None else chosen.why,
    )
    names = changed.get("secrets", view.run.config.get("secrets", []))
    secret_values.keep(
        workspace.home,
        view.run.run_id,
        secret_values.find_values(workspace.home, names, os.environ),
    )
    became = (spec, apply_sets(view.run.config, changed)) if changed else None
    now = time.time()
    if not workspace.control.request(view.run.run_id, desired, now, key=key, became=became):
        raise _running(view.run.run_id, "being started by somebody else")
    if await _deliver(workspace, view.run.run_id):
        await until_attempt(workspace, view.run.run_id)
    return launched(workspace, view.run.run_id, cursor_of(view))


async def clean(
    workspace: Workspace,
    run: str,
    *,
    keep: Sequence[str] = (),
    dry_run: bool = False,
    force: bool = False,
) -> CleanAnswer:
    """Remove what an ended run left on its host, but `best` and `final` where they are kept.

    A training that others started is watched no longer; it goes on, and nothing of it is removed.

    The mirror and the metrics stay: status, logs and metrics go on answering.

    Raises:
        StateError: `RUN_NOT_FOUND`, `RUN_IS_RUNNING`; without `force` also `NOT_MIRRORED`.
        UsageError: `BAD_ARGUMENT` for something that can't be kept.
    """
    for name in keep:
        if name not in _KEPT:
            raise UsageError(
                "BAD_ARGUMENT",
                f"{name!r} can't be kept.",
                f"Keep any of {', '.join(_KEPT)}.",
                field="keep",
            )
    view = await current_view(workspace, run)
    if view.run.is_attached and not view.ended and not dry_run:
        view = await detach(workspace, view)
    elif not view.run.is_attached:
        _refuse_unless_ended(view)
    if not force:
        _refuse_what_is_not_here(workspace, view)
    backend = workspace.backend(view.run.host)
    there = await backend.contents(view.run.run_id)
    kept = _kept_names(view, keep, there)
    removed = [name for name in there if name not in kept]
    freed = 0
    if not dry_run:
        await _until_read(workspace, view.run.run_id)
        freed = await backend.remove(view.run.run_id, removed if kept else ["."])
        workspace.control.set_cleaned(view.run.run_id)
        secret_values.forget(workspace.home, view.run.run_id)
    return CleanAnswer(
        run_id=view.run.run_id,
        host=view.run.host,
        removed=removed,
        freed_bytes=freed,
        kept=sorted(kept),
        dry_run=True if dry_run else None,
    )


async def _until_read(workspace: Workspace, run_id: str) -> None:
    """Raises:
    StateError: `RUN_IS_RUNNING`, the box has not said its last word, or it was not read.
    """
    run = workspace.control.run(run_id)
    if run.cleaned:
        return
    await take_over_alerts(workspace, run)
    await until_closed(workspace, run_id)
    if not workspace.control.run(run_id).closed:
        raise _running(run_id, "ended, but not yet read to its end")
    look_for_alerts(workspace, run_id)  # what its box could not send is sent from here


def _refuse_what_is_not_here(workspace: Workspace, view: RunView) -> None:
    """Raises:
    StateError: `NOT_MIRRORED`, the newest checkpoint is to be here, and is not yet.
    """
    newest = view.index.resume_from
    here = mirrored_step(workspace, view) if is_mirrored_here(view.run) else newest
    if newest is not None and not view.run.cleaned and (here is None or here < newest):
        raise StateError(
            "NOT_MIRRORED",
            f"The checkpoint of step {newest} is not here yet; mirrored so far: {here or 'none'}.",
            "`trainmaster tick` brings it; --force removes it all the same.",
            retryable=True,
        )


def _refuse_unless_ended(view: RunView) -> None:
    if view.state is RunState.STOPPING:
        raise StateError(
            "RUN_IS_RUNNING",
            f"Run {view.run.run_id} is stopping.",
            f"Wait for its end: `trainmaster wait {view.run.run_id} --until end --timeout 600`.",
            retryable=True,
        )
    if not view.ended:
        raise _running(view.run.run_id, view.state.value)


def _running(run_id: str, state: str) -> StateError:
    return StateError(
        "RUN_IS_RUNNING",
        f"Run {run_id} is {state}.",
        f"Stop it first (`trainmaster stop {run_id}`), or wait for its end.",
    )


def _refuse_cleaned(view: RunView) -> None:
    if view.run.cleaned:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} was cleaned: its files are gone from {view.run.host}.",
            "Launch it anew.",
        )


def _changed(
    workspace: Workspace, view: RunView, sets: Sequence[str], chosen: ChosenPatch | None
) -> tuple[dict[str, Any], str]:
    """The dotted values of the resolved configuration that `sets` and the patch change, and the
    changed spec."""
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
    before = plan_again(view.run.spec, (), view.run.plan)
    after = plan_again(view.run.spec, asked, view.run.plan)
    kept_before = _without(before.config, _NEVER_RESENT)
    kept_after = _without(after.config, _NEVER_RESENT)
    found = dict(_differences(kept_before, kept_after, ""))
    named = [item.partition("=")[0].strip() for item in sets]
    newest = newest_config(workspace, view)
    patched = {} if chosen is None else chosen.patch.set
    told = with_patch(found, sets, chosen)
    return of_one_batch(told, named, patched, after.config, newest), after.spec_text


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str
) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and set(old) == set(value):
            found += _differences(old, value, f"{prefix}{key}.")
        elif old != value:
            found.append((f"{prefix}{key}", value))
    return found


def _without(config: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}


def _refuse_if_nothing_is_left(
    view: RunView, mode: str, step: int | None, changed: Mapping[str, Any]
) -> None:
    newest = view.index.resume_from or 0
    begins = {"latest": newest, "scratch": 0}.get(mode, step or 0)
    target = int(changed.get("steps", view.run.config["steps"]))
    if target <= begins:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} has {target} steps to do, and step {begins} is done.",
            "Add steps (`--set steps=N`), or start from an earlier checkpoint (`--from STEP`).",
        )


def _refuse_if_time_is_up(view: RunView, changed: Mapping[str, Any]) -> None:
    limits = changed.get("limits") or view.run.config["limits"]
    limit = float(changed.get("limits.max_runtime_s", limits["max_runtime_s"]))
    spent = sum(attempt.seconds(view.now) for attempt in view.record.attempts)
    if spent >= limit:
        raise StateError(
            "RUN_ENDED",
            f"Run {view.run.run_id} has used up its time: {spoken_duration(spent)} over all "
            f"attempts, of {spoken_duration(limit)}.",
            "Allow more (`--set limits.max_runtime=12h`); it counts from the first attempt on.",
            field="limits.max_runtime",
        )


def _kept_names(view: RunView, keep: Sequence[str], there: Sequence[str]) -> set[str]:
    kept = {"final"} if "final" in keep else set()
    if "best" in keep:
        kept |= {entry.path for entry in view.index.entries if entry.step == view.index.best}
    return {name for name in kept if name in there}
