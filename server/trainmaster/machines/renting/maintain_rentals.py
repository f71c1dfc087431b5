"""Maintenance of all rented instances, once: for ticks, and for a server that starts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.rentals import ReconcileAnswer
from trainmaster.machines.renting.drain import runs_of
from trainmaster.machines.renting.factory import CloudFactory
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.machines.renting.instances import advance_instance, start_provision_worker
from trainmaster.machines.renting.lifecycle import LEASE_OVER
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.release import request_release
from trainmaster.machines.renting.volumes import maintain_volumes
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
# For one instance, and for the lists of all providers; the next call repeats what takes longer.
_INSTANCE_S = 60.0
_LISTS_S = 90.0


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """`did`: by instance, what was done; `failed`: by instance or provider, what was not."""

    did: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


async def maintain_instances(
    workspace: Workspace, *, factory: CloudFactory | None = None, now: float | None = None
) -> MaintenanceReport:
    """Release idle and expiring instances, do the next step for each open one and for volumes, and
    compare the providers' lists with the records. A failure of one does not stop the others;
    bounded in time.

    Does nothing if no instance or volume is open and no provider has a key.
    """
    report = MaintenanceReport()
    if not has_rentals(workspace, os.environ):
        return report
    failures = Failures(workspace.home)
    due = release_due(workspace, time.time() if now is None else now, failures)
    for tag, why in due.items():
        report.did[tag] = [f"is released: {why}"]
    for instance in workspace.control.instances.all(only_open=True):
        with failures.caught(instance.tag):
            start_provision_worker(workspace, instance.tag)
            async with asyncio.timeout(_INSTANCE_S):
                await _step(workspace, instance.tag, report, factory)
    now_t = time.time() if now is None else now
    report.did.update(await maintain_volumes(workspace, failures, now_t, factory))
    with failures.caught("lists"):
        async with asyncio.timeout(_LISTS_S):
            await _reconcile(workspace, report, factory)
    report.failed.update(failures.texts)
    return report


async def _step(
    workspace: Workspace, tag: str, report: MaintenanceReport, factory: CloudFactory | None
) -> None:
    did = await advance_instance(workspace, tag, factory=factory)
    if did:
        report.did.setdefault(tag, []).extend(did)


async def _reconcile(
    workspace: Workspace, report: MaintenanceReport, factory: CloudFactory | None
) -> None:
    reconciled: ReconcileAnswer = await reconcile(workspace, factory=factory)
    for tag, did in (reconciled.did or {}).items():
        report.did.setdefault(tag, []).extend(did)
    for orphan in reconciled.orphans or ():
        text = f"has no record here, and costs money: {command('release', orphan.instance)}"
        report.did.setdefault(orphan.instance, []).append(text)
    report.failed.update(reconciled.not_asked or {})


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
