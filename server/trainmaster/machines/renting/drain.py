"""Before a box is given back: its runs end, and what they made is brought here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.runs.fetch import fetch
from trainmaster.runs.maintain import maintain
from trainmaster.runs.stop import stop
from trainmaster.store.control_instances import RentedBox
from trainmaster.store.run import Run
from trainmaster.sync.follow import catch_up
from trainmaster.sync.mirrored_checkpoints import wanted_here
from trainmaster.sync.run_view import RunView, load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.checkpoint_mirror import bring_wanted
from trainmaster.words.errors import HostError, StateError, TrainmasterError, UsageError

# A trainer that is stopped saves first, then is killed; its supervisor tells of it.
_STOPS_WITHIN_S = 300.0
# So long a link that fails is tried again before a box is kept, or given back all the same.
_TRIES_FOR_S = 60.0
# What a lease may be overrun by: to see to it that a box ends counts more than what lies there.
_AFTER_LEASE_S = 60.0
FINAL = "final"


@dataclass(frozen=True, slots=True)
class Left:
    """`leaves`: whether the box is to be ended now; False: it is kept. `body`: for the record."""

    leaves: bool
    body: Mapping[str, Any]


@dataclass(slots=True)
class Losses:
    """What would be lost with a box: `open_runs`, and by run what is only there."""

    open_runs: list[str] = field(default_factory=list)
    not_here: dict[str, str] = field(default_factory=dict)


def runs_of(workspace: Workspace, box: RentedBox) -> list[Run]:
    """The runs whose newest place the box is, and whose files are still there."""
    return [run for run in workspace.control.runs() if run.host == box.host and not run.cleaned]


def losses_of(workspace: Workspace, box: RentedBox) -> Losses:
    """As far as is known here; asks nobody."""
    found = Losses()
    for run in runs_of(workspace, box):
        view = load_view(workspace, run.run_id)
        if not view.ended:
            found.open_runs.append(run.run_id)
        if told := _only_there(workspace, view):
            found.not_here[run.run_id] = told
    return found


async def take_leave(workspace: Workspace, box: RentedBox, now: float) -> Left | None:
    """One step on the way to a box's end, as `body["release"]` asks for it; None while it goes on.

    With `force`, runs are stopped, and what can't be brought here in time is told, and lost.
    """
    request: Mapping[str, Any] = box.body["release"]
    for_s = now - float(request["t"])
    left_s = box.lease_end_t + _AFTER_LEASE_S - now
    try:
        async with asyncio.timeout(max(_TRIES_FOR_S, left_s)):
            return await _leave(workspace, box, now, left_s)
    except TimeoutError:
        late = HostError("TIMEOUT", "the lease was over before all of it was.", "", True)
        return _without(box, late, now)
    except TrainmasterError as error:
        if for_s <= min(_TRIES_FOR_S, left_s):
            return None
        return _without(box, error, now)


async def _leave(workspace: Workspace, box: RentedBox, now: float, left_s: float) -> Left | None:
    request, runs = box.body["release"], runs_of(workspace, box)
    open_runs = await _still_open(workspace, runs)
    if open_runs and not request["force"]:
        return _kept(_running(box, open_runs), now)
    if open_runs and now - float(request["t"]) <= min(_STOPS_WITHIN_S, left_s):
        for run_id in open_runs:
            with suppress(HostError):
                await stop(workspace, run_id)
        return None
    return Left(True, {"mirrored": await bring_all(workspace, box, runs)})


async def bring_all(workspace: Workspace, box: RentedBox, runs: Sequence[Run]) -> list[str]:
    """Bring records, checkpoints and final models of a box's runs here; which runs are here.

    Raises:
        TrainmasterError: something of it can't be brought.
    """
    if not runs:
        return []
    await catch_up(workspace, box.host)
    brought = []
    for run in runs:
        view = load_view(workspace, run.run_id)
        if view.link_error is not None and not run.closed:
            raise HostError("LINK_LOST", view.link_error[1], "Try again.", retryable=True)
        await bring_wanted(workspace, run.run_id)
        if _has_final(view):
            await _bring_final(workspace, view)
        brought.append(run.run_id)
    return brought


def _only_there(workspace: Workspace, view: RunView) -> str | None:
    missing = [str(step) for step in wanted_here(workspace, view)]
    told = [f"checkpoint{'s' if len(missing) > 1 else ''} {', '.join(missing)}"] if missing else []
    if _has_final(view) and not _final_folder(workspace, view).is_dir():
        told.append("the final model")
    return " and ".join(told) or None


def _has_final(view: RunView) -> bool:
    return view.progress is not None and view.progress.completed


def _final_folder(workspace: Workspace, view: RunView) -> Path:
    return workspace.mirror.of(view.run.run_id, view.run.placement).path(FINAL)


async def _bring_final(workspace: Workspace, view: RunView) -> None:
    folder = _final_folder(workspace, view)
    with suppress(UsageError):  # an attached training, or one that exports nothing
        await fetch(workspace, view.run.run_id, FINAL, folder.parent)


async def _still_open(workspace: Workspace, runs: Sequence[Run]) -> list[str]:
    await maintain(workspace, [run for run in runs if not run.closed])
    return [run.run_id for run in runs if not load_view(workspace, run.run_id).ended]


def _without(box: RentedBox, error: TrainmasterError, now: float) -> Left:
    """What becomes of a box from which not all can be brought."""
    if not box.body["release"]["force"]:
        return _kept(_not_here(box, error), now)
    return Left(True, {"lost": f"{error.code}: {error.message}", "mirrored": []})


def _kept(error: TrainmasterError, now: float) -> Left:
    return Left(False, {"release": None, "release_refused": error.to_dict(), "refused_t": now})


def _running(box: RentedBox, runs: Sequence[str]) -> StateError:
    return StateError(
        "RUN_IS_RUNNING",
        f"{box.host} has open runs: {', '.join(runs)}.",
        f"Stop them (`trainmaster stop {runs[0]}`) and wait for their end, or pass --force: then "
        "they are stopped first.",
    )


def _not_here(box: RentedBox, error: TrainmasterError) -> StateError:
    return StateError(
        "NOT_MIRRORED",
        f"What lies on {box.host} can't be brought here: {error.message}",
        f"`trainmaster hosts check {box.host}` tells more; --force gives it back all the same.",
        retryable=True,
    )
