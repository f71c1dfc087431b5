"""Automatic release of instances that are idle, or whose lease is about to end. The quote to which
the user agreed says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.machines.renting.drain import runs_of
from trainmaster.machines.renting.lifecycle import LEASE_OVER
from trainmaster.machines.renting.release import request_release
from trainmaster.settings.settings import Settings, read_settings
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.store.failures import Failures
from trainmaster.sync.rebuild_state import refuse_incomplete
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

IDLE = "idle"
# Supervisors have stopped their trainers by then; copying what they saved takes time.
_BEFORE_END_S = 180.0
# Of a short lease at most this share.
_MAX_LEASE_SHARE = 0.1
# After a refusal: the data could not be copied.
_RETRY_AFTER_S = 900.0


@dataclass(frozen=True, slots=True)
class RunActivity:
    """`over`: the run has ended, and its records were read to the end. `last_active_t`: Unix time
    of its last sign of life."""

    over: bool
    last_active_t: float


def idle_since(instance: RentedInstance, runs: Sequence[RunActivity]) -> float | None:
    """The Unix time since which no run needs the instance; None while one does, or may."""
    if instance.state is not RentState.READY or not all(run.over for run in runs):
        return None
    return max([instance.ready_t or instance.intended_t, *(run.last_active_t for run in runs)])


def lease_ends(instance: RentedInstance, now: float) -> bool:
    """Whether the lease has ended, or ends within minutes."""
    length_s = instance.lease_end_t - instance.intended_t
    return now >= instance.lease_end_t - min(_BEFORE_END_S, _MAX_LEASE_SHARE * length_s)


def idle_instances(
    workspace: Workspace, now: float, failures: Failures, settings: Settings | None = None
) -> list[RentedInstance]:
    """Instances idle for `idle_minutes`, not to be kept and not being released yet. One whose runs
    can't be read is kept, and recorded in `failures`.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`.
    """
    minutes = (settings or read_settings(workspace.home)).idle_minutes
    if minutes is None:
        return []
    idle = []
    for instance in workspace.control.instances.all(only_open=True):
        refused_t = instance.release_refused_t or 0.0
        if instance.keep or instance.release or 0 <= now - refused_t < _RETRY_AFTER_S:
            continue
        with failures.caught(instance.tag):
            since_t = idle_since(instance, _activities(workspace, instance))
            if since_t is not None and now - since_t >= 60.0 * minutes:
                idle.append(instance)
    return idle


def expiring_instances(workspace: Workspace, now: float) -> list[RentedInstance]:
    """Instances whose lease ends, and that are not being released yet."""
    return [
        instance
        for instance in workspace.control.instances.all(only_open=True)
        if instance.state is not RentState.RELEASING
        and not instance.release
        and lease_ends(instance, now)
    ]


def release_due(workspace: Workspace, now: float, failures: Failures) -> dict[str, str]:
    """Request the release of idle and expiring instances; by tag, the reason. What fails for one of
    them is recorded in `failures`, and those that expire come first.

    Their data is copied here first. If that fails, an idle instance is kept and retried later; an
    expiring one is released anyway.
    """
    did = {}
    for instance in expiring_instances(workspace, now):
        with failures.caught(instance.tag):
            request_release(workspace, instance, why=LEASE_OVER, force=True, agreed_by="lease")
            did[instance.tag] = LEASE_OVER
    with failures.caught("settings"):
        for instance in idle_instances(workspace, now, failures):
            if instance.tag not in did:
                request_release(workspace, instance, why=IDLE, force=False, agreed_by="idle")
                did[instance.tag] = IDLE
    return did


def _activities(workspace: Workspace, instance: RentedInstance) -> list[RunActivity]:
    return [_activity(workspace, run.run_id) for run in runs_of(workspace, instance)]


def _activity(workspace: Workspace, run_id: str) -> RunActivity:
    refuse_incomplete(workspace)
    view = load_view(workspace, run_id)
    times = [view.run.created_t, view.record.heartbeat_t, view.record.state_t]
    over = view.ended and view.run.closed
    return RunActivity(over, max(t for t in times if t is not None))
