"""Maintenance of all rented instances, once: for ticks, and for a server that starts."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.rentals import ReconcileAnswer
from trainmaster.machines.renting.factory import CloudFactory
from trainmaster.machines.renting.has_rentals import has_rentals
from trainmaster.machines.renting.idle import release_due
from trainmaster.machines.renting.instances import advance_instance, start_provision_worker
from trainmaster.machines.renting.reconcile import reconcile
from trainmaster.machines.renting.volumes import maintain_volumes
from trainmaster.store.failures import Failures
from trainmaster.sync.workspace import Workspace

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
