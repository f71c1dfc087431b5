"""Drain an instance before its release: end its runs, and copy their data here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import HostError, StateError, TrainmasterError, UsageError
from trainmaster.runs.fetch import fetch
from trainmaster.runs.stop import stop
from trainmaster.runs.upkeep.maintain import maintain
from trainmaster.store.control.instances import RecordedError, ReleaseRequest, RentedInstance
from trainmaster.store.failures import as_error
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.mirrored_checkpoints import wanted_here
from trainmaster.sync.rebuild import rebuild_behind
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import bring_wanted

# A stopped trainer saves first, and is killed if that takes too long; its supervisor reports it.
_STOPS_WITHIN_S = 300.0
# How long a failing link is retried before the instance is kept, or released with a loss.
_RETRIES_FOR_S = 60.0
# A lease may be exceeded by this: ending the instance matters more than the data on it.
_AFTER_LEASE_S = 60.0
# A process that drains for longer was killed in it, again and again.
_DRAINS_WITHIN_S = 600.0
FINAL = "final"


@dataclass(frozen=True, slots=True)
class Drained:
    """`done`: the instance may be ended now; False: it is kept. `changes`: fields of its
    record."""

    done: bool
    changes: Mapping[str, Any]


@dataclass(slots=True)
class Losses:
    """What a release would lose: `open_runs`, and by run the data that exists only there."""

    open_runs: list[str] = field(default_factory=list)
    not_mirrored: dict[str, str] = field(default_factory=dict)


def runs_of(workspace: Workspace, instance: RentedInstance) -> list[Run]:
    """The runs whose newest placement is the instance, and whose files are still there."""
    runs = workspace.control.runs()
    return [run for run in runs if run.host == instance.host and not run.cleaned]


def assess_losses(workspace: Workspace, instance: RentedInstance) -> Losses:
    """From local records alone."""
    losses = Losses()
    for run in runs_of(workspace, instance):
        view = load_view(workspace, run.run_id)
        if not view.ended:
            losses.open_runs.append(run.run_id)
        if data := _not_mirrored(workspace, view):
            losses.not_mirrored[run.run_id] = data
    return losses


async def drain(
    workspace: Workspace, instance: RentedInstance, request: ReleaseRequest, now: float
) -> Drained | None:
    """One step of draining an instance as `request` says; None while it is not finished.

    With `force`, runs are stopped, and data that can't be copied in time is recorded as lost.
    """
    elapsed_s = now - request.requested_t
    left_s = instance.lease_end_t + _AFTER_LEASE_S - now
    late = HostError("TIMEOUT", "the lease ended before all data was copied.", "", True)
    if request.force and left_s < 0 and elapsed_s > _DRAINS_WITHIN_S:
        return _incomplete(instance, request, late, now)  # reads nothing of its runs any more
    try:
        async with asyncio.timeout(max(_RETRIES_FOR_S, left_s)):
            return await _drain(workspace, instance, request, now)
    except TimeoutError:
        return _incomplete(instance, request, late, now)
    except Exception as error:  # whatever its runs' data does, the instance ends
        if elapsed_s <= min(_RETRIES_FOR_S, left_s):
            return None
        drain_error = as_error(error, workspace.home, instance.host)
        return _incomplete(instance, request, drain_error, now)


async def _drain(
    workspace: Workspace, instance: RentedInstance, request: ReleaseRequest, now: float
) -> Drained | None:
    rebuild_behind(workspace)
    if workspace.metrics.replay_due:
        return None  # what is still to be copied is known by the runs' records
    runs = runs_of(workspace, instance)
    open_runs = await _still_open(workspace, runs)
    left_s = instance.lease_end_t + _AFTER_LEASE_S - now
    if open_runs and not request.force:
        return _refused(open_runs_error(instance, open_runs), now)
    if open_runs and now - request.requested_t <= min(_STOPS_WITHIN_S, left_s):
        for run_id in open_runs:
            with suppress(HostError):
                await stop(workspace, run_id)
        return None
    return Drained(True, {"mirrored_runs": tuple(await mirror_runs(workspace, instance, runs))})


async def mirror_runs(
    workspace: Workspace, instance: RentedInstance, runs: Sequence[Run]
) -> list[str]:
    """Copy records, checkpoints and final models of an instance's runs here; their run ids.

    Raises:
        TrainmasterError: some of it can't be copied.
    """
    if not runs:
        return []
    await catch_up(workspace, instance.host)
    mirrored = []
    for run in runs:
        view = load_view(workspace, run.run_id)
        if view.link_error is not None and not run.closed:
            raise HostError("LINK_LOST", view.link_error[1], "Try again.", retryable=True)
        await bring_wanted(workspace, run.run_id)
        if _has_final(view):
            await _fetch_final(workspace, view)
        mirrored.append(run.run_id)
    return mirrored


def open_runs_error(instance: RentedInstance, runs: Sequence[str]) -> StateError:
    return StateError(
        "RUN_IS_RUNNING",
        f"{instance.host} has open runs: {', '.join(runs)}.",
        f"Stop them ({command('stop', runs[0])}) and wait until they have ended, or have them "
        f"stopped first: {command('release', instance.host, '--force')}.",
    )


def _not_mirrored(workspace: Workspace, view: RunView) -> str | None:
    missing = [str(step) for step in wanted_here(workspace, view)]
    parts = [f"checkpoint{'s' if len(missing) > 1 else ''} {', '.join(missing)}"] if missing else []
    if _has_final(view) and not _final_folder(workspace, view).is_dir():
        parts.append("the final model")
    return " and ".join(parts) or None


def _has_final(view: RunView) -> bool:
    return view.progress is not None and view.progress.completed


def _final_folder(workspace: Workspace, view: RunView) -> Path:
    return workspace.mirror.of(view.run.run_id, view.run.placement).path(FINAL)


async def _fetch_final(workspace: Workspace, view: RunView) -> None:
    folder = _final_folder(workspace, view)
    with suppress(UsageError):  # an attached training, or one that exports nothing
        await fetch(workspace, view.run.run_id, FINAL, folder)


async def _still_open(workspace: Workspace, runs: Sequence[Run]) -> list[str]:
    await maintain(workspace, [run for run in runs if not run.closed])
    return [run.run_id for run in runs if not load_view(workspace, run.run_id).ended]


def _incomplete(
    instance: RentedInstance, request: ReleaseRequest, error: TrainmasterError, now: float
) -> Drained:
    """The outcome if some data can't be copied: kept, or with `force` released with a loss."""
    if not request.force:
        return _refused(_not_mirrored_error(instance, error), now)
    return Drained(True, {"loss": f"{error.code}: {error.message}", "mirrored_runs": ()})


def _refused(error: TrainmasterError, now: float) -> Drained:
    refusal = RecordedError.of(error)
    return Drained(False, {"release": None, "release_refusal": refusal, "release_refused_t": now})


def _not_mirrored_error(instance: RentedInstance, error: TrainmasterError) -> StateError:
    return StateError(
        "NOT_MIRRORED",
        f"Data on {instance.host} can't be copied here: {error.message}",
        f"Run {command('hosts check', instance.host)} for the cause, or release it all the same: "
        f"{command('release', instance.host, '--force')}.",
        retryable=True,
    )
