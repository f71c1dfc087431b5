"""Boxes that are given back without anybody being asked again: nothing runs there any more, or
their lease is about to end. That this happens was agreed to with their quote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.machines.renting.drain import runs_of
from trainmaster.machines.renting.lifecycle import LEASE_OVER
from trainmaster.machines.renting.release import request_release
from trainmaster.store.control.instances import RentedBox, RentState
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace
from trainmaster.words.settings import Settings, read_settings

IDLE = "idle"
# The boxes' supervisors have stopped their trainers by then; what they saved is still to come here.
_BEFORE_END_S = 180.0
# Of a short lease no more than this share.
_MOST_OF_LEASE = 0.1
# One that was kept, since what lies there could not be brought here.
_AGAIN_AFTER_S = 900.0


@dataclass(frozen=True, slots=True)
class Stay:
    """A run on a box, as far as its idleness goes; Unix seconds. `over`: it has ended, and its
    records are read to the end. `quiet_t`: since when nothing has happened with it."""

    over: bool
    quiet_t: float


def idle_since(box: RentedBox, stays: Sequence[Stay]) -> float | None:
    """Since when nothing is wanted of a box; None while something is, or may be."""
    if box.state is not RentState.READY or not all(stay.over for stay in stays):
        return None
    ready_t = float(box.body.get("ready_t") or box.intended_t)
    return max([ready_t, *(stay.quiet_t for stay in stays)])


def lease_ends(box: RentedBox, now: float) -> bool:
    """Whether a lease is over, or as good as over."""
    length_s = box.lease_end_t - box.intended_t
    return now >= box.lease_end_t - min(_BEFORE_END_S, _MOST_OF_LEASE * length_s)


def due_idle(workspace: Workspace, now: float, settings: Settings | None = None) -> list[RentedBox]:
    """The boxes that have been idle for `idle_minutes`, and that nobody is giving back yet."""
    minutes = (settings or read_settings(workspace.home)).idle_minutes
    if minutes is None:
        return []
    due = []
    for box in workspace.control.boxes.boxes(only_open=True):
        refused_t = float(box.body.get("refused_t") or 0.0)
        if box.body.get("release") or 0 <= now - refused_t < _AGAIN_AFTER_S:
            continue
        since_t = idle_since(box, _stays(workspace, box))
        if since_t is not None and now - since_t >= 60.0 * minutes:
            due.append(box)
    return due


def due_ends(workspace: Workspace, now: float) -> list[RentedBox]:
    """The boxes whose lease ends, and that nobody is giving back yet."""
    return [
        box
        for box in workspace.control.boxes.boxes(only_open=True)
        if box.state is not RentState.RELEASING
        and not box.body.get("release")
        and lease_ends(box, now)
    ]


def release_due(workspace: Workspace, now: float) -> dict[str, str]:
    """Have everything given back that is due, by itself and detached; by tag, why.

    What lies on a box is brought here first. Where that fails an idle box is kept, and tried again
    in a while; one whose lease ends is given back all the same.
    """
    did = {}
    for box in due_ends(workspace, now):
        request_release(workspace, box, why=LEASE_OVER, force=True, agreed_by="lease")
        did[box.tag] = LEASE_OVER
    for box in due_idle(workspace, now):
        if box.tag not in did:
            request_release(workspace, box, why=IDLE, force=False, agreed_by="idle")
            did[box.tag] = IDLE
    return did


def _stays(workspace: Workspace, box: RentedBox) -> list[Stay]:
    return [_stay(workspace, run.run_id) for run in runs_of(workspace, box)]


def _stay(workspace: Workspace, run_id: str) -> Stay:
    view = load_view(workspace, run_id)
    heard = [view.run.created_t, view.record.heartbeat_t, view.record.state_t]
    over = view.ended and view.run.closed
    return Stay(over, max(t for t in heard if t is not None))
